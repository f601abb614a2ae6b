//! Whatever the user writes and whatever the cluster shows: the plan comes to rest, and never asks for what the API
//! server would refuse.

mod cluster;

use cluster::{orders_db, ready};
use pilothouse_sdk::prelude::*;
use pilothouse_sdk::{Action, Failure};
use proptest::prelude::*;

/// Fields of a StatefulSet that cannot change once it exists.
const IMMUTABLE: [&str; 4] =
    ["/spec/selector", "/spec/serviceName", "/spec/podManagementPolicy", "/spec/volumeClaimTemplates"];

/// A spec that the CRD's schema accepts.
fn spec() -> impl Strategy<Value = Value> {
    let amounts = || {
        (prop::option::of("[0-9]{1,6}m|[0-9]{1,3}([.][0-9]{1,3})?"), prop::option::of("[0-9]{1,7}[MG]i"))
            .prop_map(|(cpu, memory)| without_null(json!({"cpu": cpu, "memory": memory})))
    };
    let resources = (prop::option::of(amounts()), prop::option::of(amounts()))
        .prop_map(|(requests, limits)| without_null(json!({"requests": requests, "limits": limits})));
    (
        1..=5,
        "[0-9]{1,8}Gi",
        prop::option::of("[a-z]{1,8}"),
        prop::option::of("[a-z]{1,8}"),
        prop::option::of(resources),
    )
        .prop_map(|(replicas, storage, image, class, resources)| {
            without_null(json!({
                "replicas": replicas, "version": "16", "storage": storage, "image": image, "storageClass": class,
                "resources": resources,
            }))
        })
}

fn without_null(mut object: Value) -> Value {
    object.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
    object
}

proptest! {
    #[test]
    fn every_plan_comes_to_rest_and_changes_nothing_immutable(
        steps in prop::collection::vec((spec(), 0..=5), 1..6)
    ) {
        let mut cluster = orders_db();
        for (spec, count) in steps {
            let before = cluster.child(STATEFUL_SET, "orders-db").cloned();
            cluster.edit(|present| *present = spec.clone());

            let outcome = cluster.reconcile();
            for action in outcome.actions.as_slice() {
                let expected = matches!(
                    action,
                    Action::Apply(_) | Action::GenerateSecret(_) | Action::SetStatus(_) | Action::Event(_)
                );
                prop_assert!(expected, "{action:?}");
            }
            if let Some(Failure::Retry(text)) = &outcome.failure {
                prop_assert!(false, "what is wrong with a spec is its user's to change: {text}");
            }

            // At most: the actions, the status that follows from them, and rest.
            cluster.apply(&outcome);
            cluster.pass();
            prop_assert!(cluster.pass().is_empty());

            let after = cluster.child(STATEFUL_SET, "orders-db").cloned();
            if let (Some(before), Some(after)) = (before, &after) {
                for pointer in IMMUTABLE {
                    prop_assert_eq!(before.pointer(pointer), after.pointer(pointer), "{}", pointer);
                }
            }
            if after.is_some() {
                ready(&mut cluster, count);
                cluster.pass();
                prop_assert!(cluster.pass().is_empty());
            }
        }
    }

    #[test]
    fn replicas_alone_write_one_field(from in 1..=5, to in 1..=5) {
        let mut cluster = orders_db();
        cluster.edit(|spec| spec["replicas"] = json!(from));
        cluster.settle();
        cluster.edit(|spec| spec["replicas"] = json!(to));
        let mut changes = cluster.pass();
        changes.retain(|change| change != "status");
        let expected: &[&str] = if from == to { &[] } else { &["StatefulSet orders-db: spec.replicas"] };
        prop_assert_eq!(changes, expected);
    }
}
