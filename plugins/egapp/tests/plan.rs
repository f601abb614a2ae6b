//! The plugin, run natively: one whole plan as a golden in `fixtures/`, and what must hold in words.

use egapp::{EgApp, Identity, validate};
use pilothouse_sdk::Failure;
use pilothouse_sdk::prelude::*;
use pilothouse_sdk::serde_json;
use pilothouse_sdk::testing::{Cluster, Outcome, unexplained};

const APP: &str = "storefront";

fn storefront() -> Cluster<EgApp> {
    let object: Value =
        serde_saphyr::from_str(include_str!("../fixtures/storefront.yaml")).expect("the sample is YAML");
    let mut cluster = Cluster::from_object(object);
    cluster.answer("pods", Vec::new());
    cluster
}

/// Plays the Deployment controller: so many pods of the newest template exist and are available.
fn runs(cluster: &mut Cluster<EgApp>, count: i32) {
    let generation =
        cluster.child(DEPLOYMENT, APP).expect("it was applied")["metadata"]["generation"].clone();
    cluster.child_mut(DEPLOYMENT, APP)["status"] = json!({
        "observedGeneration": generation, "replicas": count, "updatedReplicas": count, "readyReplicas": count,
        "availableReplicas": count,
    });
}

fn pod(name: &str, hash: &str, owner: &Value) -> Value {
    let mut pod = POD.object(name);
    pod["metadata"]["labels"] = json!({"pod-template-hash": hash});
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod
}

fn ready(outcome: &Outcome) -> (State, String) {
    let ready = outcome.condition("Ready").expect("a condition");
    (ready.state, ready.reason)
}

fn refused(outcome: &Outcome) -> &str {
    match &outcome.failure {
        Some(Failure::Invalid(text)) => text,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_new_application() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../fixtures");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let plan = serde_json::to_string_pretty(&storefront().reconcile().to_json()).unwrap();
    settings.bind(|| insta::assert_snapshot!("new-application", plan));
}

#[test]
fn what_is_left_out_has_its_default() {
    let spec = json!({"framework": "java", "environment": "prod"});
    let outcome = Cluster::<EgApp>::new("shop", "orders", spec).reconcile();
    let made = outcome.applied(DEPLOYMENT, "orders").unwrap();
    assert_eq!(made["spec"]["replicas"], 1);
    let container = &made["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["name"], &container["image"]),
        (&json!("orders"), &json!("gcr.io/kuar-demo/kuard-amd64:1"))
    );
    assert_eq!(container["resources"]["requests"], json!({"cpu": "100m", "memory": "128Mi"}));
}

#[test]
fn ready_says_that_what_is_wanted_runs() {
    let mut cluster = storefront();
    assert_eq!(ready(&cluster.reconcile()), (State::False, "Creating".into()));
    cluster.settle();
    assert_eq!(ready(&cluster.reconcile()), (State::False, "RollingOut".into()));
    runs(&mut cluster, 2);
    assert_eq!(ready(&cluster.settle()), (State::True, "Available".into()));

    // What the Deployment says is about the template that it has, not about the one that this pass gives it.
    cluster.edit(|spec| spec["image"] = json!("registry.example.com/web:2"));
    assert_eq!(ready(&cluster.reconcile()), (State::False, "RollingOut".into()));
    cluster.settle();
    runs(&mut cluster, 2);
    assert_eq!(ready(&cluster.settle()).0, State::True);

    let stuck = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "m"}]);
    cluster.child_mut(DEPLOYMENT, APP)["status"]["conditions"] = stuck;
    cluster.child_mut(DEPLOYMENT, APP)["status"]["availableReplicas"] = json!(1);
    assert_eq!(ready(&cluster.settle()), (State::False, "ProgressDeadlineExceeded".into()));

    cluster.edit(|spec| spec["replicaCount"] = json!(0));
    cluster.settle();
    runs(&mut cluster, 0);
    assert_eq!(ready(&cluster.settle()).0, State::True);
}

#[test]
fn the_pods_are_those_of_the_deployment_and_always_written() {
    let mut cluster = storefront();
    assert_eq!(cluster.settle().status().unwrap()["pods"], json!([]));
    let owner = |kind: &str, name: &str| json!({"kind": kind, "name": name, "controller": true});
    let set = owner("ReplicaSet", "storefront-5f6");
    cluster.answer(
        "pods",
        vec![
            pod("storefront-5f6-a", "5f6", &set),
            pod("storefront-5f6-b", "5f6", &set),
            pod("storefront-77c-a", "77c", &owner("ReplicaSet", "storefront-77c")),
            pod("labelled-by-hand", "5f6", &json!({"kind": "ReplicaSet", "name": "storefront-5f6"})),
            pod("of-another-set", "5f6", &owner("ReplicaSet", "other-5f6")),
            pod("of-a-job", "5f6", &owner("Job", "storefront-5f6")),
        ],
    );
    assert_eq!(cluster.pass(), ["status"]);
    let pods = &cluster.primary()["status"]["pods"];
    assert_eq!(*pods, json!(["storefront-5f6-a", "storefront-5f6-b", "storefront-77c-a"]));
}

#[test]
fn labels_follow_and_the_selector_stays() {
    let object = |labels: Value| {
        let mut object = EgApp::PRIMARY.object(APP);
        object["metadata"]["labels"] = labels;
        object["spec"] = json!({"framework": "go", "environment": "dev"});
        let outcome = Cluster::<EgApp>::from_object(object).reconcile();
        outcome.applied(DEPLOYMENT, APP).unwrap().clone()
    };
    let before = object(json!({"team": "web", "app.kubernetes.io/instance": "mine"}));
    let after = object(json!({"team": "shop", "tier": "front"}));
    assert_eq!(before["spec"]["selector"], after["spec"]["selector"]);
    for (made, own) in [(&before, json!({"team": "web"})), (&after, json!({"team": "shop", "tier": "front"}))]
    {
        let labels = &made["metadata"]["labels"];
        assert_eq!(*labels, made["spec"]["template"]["metadata"]["labels"]);
        for wanted in [&own, &made["spec"]["selector"]["matchLabels"]] {
            assert!(Object::from(labels.clone()).has_all(wanted), "{labels} has not {wanted}");
        }
    }
}

#[test]
fn an_edit_is_one_write_and_so_is_drift() {
    let mut cluster = storefront();
    cluster.settle();
    cluster.edit(|spec| spec["replicaCount"] = json!(5));
    assert_eq!(cluster.pass(), ["Deployment storefront: spec.replicas", "status"]);
    cluster.child_mut(DEPLOYMENT, APP)["spec"]["template"]["spec"]["containers"][0]["name"] = json!("mine");
    assert_eq!(cluster.pass(), ["Deployment storefront: spec.template.spec.containers[0].name"]);
    cluster.remove_child(DEPLOYMENT, APP);
    assert_eq!(cluster.pass(), ["create Deployment storefront", "status"]);
}

#[test]
fn what_is_chosen_once_cannot_change() {
    for (field, value) in [("framework", json!("java")), ("appId", json!("other"))] {
        let mut cluster = storefront();
        cluster.settle();
        let before = cluster.child(DEPLOYMENT, APP).cloned();
        cluster.edit(|spec| {
            spec[field] = value;
            spec["replicaCount"] = json!(7);
        });
        let outcome = cluster.reconcile();
        let said = refused(&outcome).to_owned();
        assert!(said.starts_with(&format!("spec.{field}: cannot change")), "{said}");
        assert_eq!(ready(&outcome), (State::False, "InvalidSpec".into()));
        assert_eq!(cluster.apply(&outcome), ["status"]);
        assert_eq!(cluster.child(DEPLOYMENT, APP).cloned(), before);
        // It is remembered what it was, however often it is asked, and right again once it is put back.
        assert_eq!(refused(&cluster.reconcile()), said);
        cluster.edit(|spec| {
            spec["framework"] = json!("go");
            spec.as_object_mut().unwrap().remove("appId");
        });
        assert_eq!(cluster.pass(), ["Deployment storefront: spec.replicas", "status"]);
    }
}

#[test]
fn to_say_the_default_is_no_change() {
    let mut cluster = storefront();
    cluster.settle();
    cluster.edit(|spec| spec["appId"] = json!(APP));
    assert_eq!(cluster.pass(), ["status"], "the generation alone");
    cluster.edit(|spec| drop(spec.as_object_mut().unwrap().remove("appId")));
    assert!(cluster.reconcile().failure.is_none());
}

#[test]
fn what_the_schema_would_refuse_is_refused_by_field() {
    for (change, expected) in [
        (json!({"replicaCount": -1}), "spec.replicaCount: use 0 or more"),
        (json!({"appId": "Web_1"}), "spec.appId: use at most 63 lower case letters"),
        (json!({"appId": ""}), "spec.appId: use at most 63"),
        (json!({"appId": "-a"}), "spec.appId: use at most 63"),
        (json!({"appId": "a".repeat(64)}), "spec.appId: use at most 63"),
        (json!({"image": ""}), "spec.image: name an image"),
        (
            json!({"framework": "rust"}),
            "spec.framework: unknown variant `rust`, expected one of `java`, `python`, `go`",
        ),
        (json!({"environment": "test"}), "spec.environment: unknown variant `test`"),
        (json!({"instanceType": "highcpu"}), "spec.instanceType: unknown variant `highcpu`"),
        (json!({"framework": null}), "spec.framework: "),
    ] {
        let mut cluster = storefront();
        cluster.edit(|spec| spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone()));
        let outcome = cluster.reconcile();
        assert!(refused(&outcome).starts_with(expected), "{change}: {}", refused(&outcome));
        assert!(outcome.applied(DEPLOYMENT, APP).is_none(), "{change}");
    }
    let spec = json!({"framework": "go", "environment": "dev", "replicaCount": -1});
    let outcome = Cluster::<EgApp>::new("shop", "web.shop", spec).reconcile();
    let said = refused(&outcome);
    assert!(
        said.starts_with("metadata.name: ") && said.contains("; spec.replicaCount: "),
        "all at once: {said}"
    );
}

#[test]
fn a_webhook_asks_the_same_question() {
    let spec = |spec: Value| serde_json::from_value::<EgApp>(spec).unwrap();
    let old = spec(json!({"framework": "go", "environment": "dev"}));
    let new = spec(json!({"framework": "java", "environment": "dev", "appId": "x"}));
    let before: Identity = old.identity("web");
    let fields: Vec<_> = validate("web", &new, Some(&before)).iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["spec.appId", "spec.framework"]);
    assert!(validate("web", &new, None).is_empty());
}

#[test]
fn every_field_of_the_crd_is_explained() {
    let crd = egapp::manifest().to_json()["crds"][0].clone();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(unexplained(&crd), Vec::<String>::new());
    let rules = &schema["x-kubernetes-validations"][0];
    assert_eq!(rules["fieldPath"], ".spec.appId");
}
