//! What the status says: counts, conditions, and an event for each transition of a condition.

use pilothouse_sdk::prelude::*;

use crate::children::stateful_set::{Pending, Volume};
use crate::names::Names;
use crate::spec::{Checked, PostgresCluster};

/// Status of a cluster, beside its conditions `Ready`, `Replicating` (where there is more than one instance) and
/// `ResizePending`.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PostgresClusterStatus {
    /// Instances that the spec asked for in the last pass.
    pub desired_replicas: i64,
    /// Instances that exist.
    pub replicas: i64,
    /// Instances that accept connections.
    pub ready_replicas: i64,
    /// The instance that takes writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,
}

pub(crate) fn report(
    pass: &Pass<PostgresCluster>,
    names: Names<'_>,
    spec: &Checked,
    volume: &Volume,
    live: Option<views::StatefulSet<'_>>,
    actions: &mut Actions,
) {
    let status = PostgresClusterStatus {
        desired_replicas: i64::from(spec.replicas),
        replicas: live.map_or(0, |set| set.current()),
        ready_replicas: live.map_or(0, |set| set.ready_replicas()),
        primary: live.map(|_| names.first_pod()),
    };
    let wanted = i64::from(spec.replicas);
    let mut conditions = vec![ready(status.ready_replicas.min(wanted), wanted), resize_pending(volume, spec)];
    if wanted > 1 {
        conditions.push(replicating(names));
    }
    publish(pass, &status, conditions, actions);
}

/// Says what is wrong with the spec, and keeps the counts as they were.
pub(crate) fn report_invalid(pass: &Pass<PostgresCluster>, failure: &Failure, actions: &mut Actions) {
    let (Failure::Invalid(text) | Failure::Retry(text)) = failure;
    let status = PostgresClusterStatus {
        desired_replicas: pass.spec.replicas.into(),
        replicas: pass.primary.int("/status/replicas"),
        ready_replicas: pass.primary.int("/status/readyReplicas"),
        primary: pass.primary.at("/status/primary").and_then(Value::as_str).map(str::to_owned),
    };
    publish(pass, &status, vec![Condition::no("Ready", "InvalidSpec", text.as_str())], actions);
}

fn ready(ready: i64, wanted: i64) -> Condition {
    let message = [&ready.to_string(), "/", &wanted.to_string(), " replicas ready"].concat();
    if ready == wanted {
        Condition::yes("Ready", "AllReplicasReady", message)
    } else {
        Condition::no("Ready", "Provisioning", message)
    }
}

fn replicating(names: Names<'_>) -> Condition {
    let message = [
        "instances do not replicate yet: ",
        &names.rw(),
        " leads to ",
        &names.first_pod(),
        ", the others stay empty, and ",
        &names.ro(),
        " has no endpoints",
    ];
    Condition::no("Replicating", "NoReplication", message.concat())
}

fn resize_pending(volume: &Volume, spec: &Checked) -> Condition {
    let wanted = spec.storage.to_string();
    match &volume.pending {
        None => Condition::no(
            "ResizePending",
            "UpToDate",
            "volumes are as spec.storage and spec.storageClass say",
        ),
        Some(Pending::Grow(present)) => {
            let message = [
                "volumes of ",
                present,
                " are not grown to ",
                &wanted,
                " by this version; nothing was changed",
            ];
            Condition::yes("ResizePending", "GrowNotSupported", message.concat())
        }
        Some(Pending::Shrink(present)) => {
            let message =
                ["volumes of ", present, " cannot shrink to ", &wanted, "; set spec.storage to ", present];
            Condition::yes("ResizePending", "ShrinkRefused", message.concat())
        }
        Some(Pending::StorageClass(present)) => {
            let right = match present {
                Some(class) => ["set spec.storageClass to ", class].concat(),
                None => "remove spec.storageClass".to_owned(),
            };
            let message = ["the storage class of a volume cannot change; ", &right];
            Condition::yes("ResizePending", "StorageClassFixed", message.concat())
        }
    }
}

fn publish(
    pass: &Pass<PostgresCluster>,
    status: &PostgresClusterStatus,
    conditions: Vec<Condition>,
    actions: &mut Actions,
) {
    for condition in &conditions {
        if let Some(event) = transition(pass.condition(&condition.name), condition) {
            actions.push(event);
        }
    }
    let mut update = pass.set_status(status);
    // One instance replicates to nobody: what was said of more must not stay.
    if pass.spec.replicas == 1 && pass.condition("Replicating").is_some() {
        update = update.without_condition("Replicating");
    }
    update.conditions = conditions;
    actions.push(update);
}

/// An event when a condition changes its state or its reason. Nothing is remembered: the old one is in the object.
fn transition(before: Option<Condition>, now: &Condition) -> Option<Event> {
    let same = |before: &Condition| before.state == now.state && before.reason == now.reason;
    if before.as_ref().is_some_and(same) {
        return None;
    }
    let message = now.message.as_str();
    match (now.name.as_str(), now.state, now.reason.as_str()) {
        ("Ready", _, "Provisioning" | "AllReplicasReady") => Some(Event::normal(&now.reason, message)),
        // That all is as it should be is no news, unless it was not.
        ("ResizePending", State::False, _) => before.map(|_| Event::normal("ResizeSettled", message)),
        _ => Some(Event::warning(&now.reason, message)),
    }
}
