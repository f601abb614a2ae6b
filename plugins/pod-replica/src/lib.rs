//! `podreplicas.app.example.com/v1alpha1`: so many pods, named by the lowest numbers that are free.
//!
//! The host watches the pods' metadata alone. What that does not say is asked for where it matters: which pods have
//! finished by a second watch, of those alone, and which are ready by a look-up when some must go, which is rare.
//! So its own condition `Ready` says that all pods exist, and nothing about theirs.

use std::{cmp::Reverse, collections::BTreeSet};

use pilothouse_sdk::prelude::*;

/// A number of equal pods.
#[derive(Deserialize, JsonSchema)]
pub struct PodReplica {
    /// Number of pods.
    #[schemars(range(min = 0, max = 1000), extend("format" = "int32"))]
    size: usize,
}

/// What there is.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodReplicaStatus {
    /// Names of the pods, by number.
    pod_names: Vec<String>,
    /// Number of pods.
    #[schemars(extend("format" = "int32"))]
    replicas: usize,
    /// Label selector of the pods.
    selector: String,
}

/// The rule that tells which pods have ended and never run again.
const FINISHED: &str = "finished";
/// What it watches.
const IS_FINISHED: &str = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";
/// Of this resource.
const SELECTOR: &str = "pilothouse.dev/managed=pod-replica,app.kubernetes.io/instance=$(name)";
/// What a look-up shows to tell which pods are ready.
const READINESS: [&str; 2] = [".status.conditions[*].type", ".status.conditions[*].status"];
/// Bears the resource's name.
const LABEL: &str = "app.kubernetes.io/instance";
/// Longest name of a resource: it is a label's value (63 characters), and a pod's host name together with its number.
const NAME_CHARACTERS_MAX: u32 = 58;

impl Reconciler for PodReplica {
    const PRIMARY: Resource =
        Resource::namespaced("app.example.com", "v1alpha1", "PodReplica", "podreplicas");
    type Status = PodReplicaStatus;

    fn controller() -> Controller {
        let crd = Crd::of::<Self>()
            .short_name("podr")
            .names("^[-.a-z0-9]+$", NAME_CHARACTERS_MAX)
            .scale(".spec.size", ".status.replicas")
            .scale_selector(".status.selector")
            .column("Size", Column::Integer, ".spec.size")
            .column("Pods", Column::Integer, ".status.replicas")
            .age();
        let pods = Child::from(POD).create_only();
        let pods = if cfg!(feature = "whole-pods") { pods } else { pods.metadata_only() };
        let finished = Related::matching(FINISHED, POD, SELECTOR).with_fields(IS_FINISHED).metadata_only();
        let conditions = Related::on_request("pods", POD).fields(&READINESS);
        Controller::new(crd).owns(pods).reads(finished).reads(conditions)
    }

    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        let (name, size, selector) = (pass.name(), pass.spec.size, format!("{LABEL}={}", pass.name()));
        let pods = pass.numbered_children(POD);
        let staying = pods.iter().filter(|(_, pod)| !pod.is_terminating());
        let (finished, mut live): (Vec<_>, Vec<_>) =
            staying.partition(|(_, pod)| pass.is_among(FINISHED, pod));

        let surplus = live.len().saturating_sub(size);
        if surplus > 0 && size > 0 {
            let question = LookUp::all("conditions", POD).selector(&selector).limit(LookUp::LIMIT_MAX);
            let Some(shown) = pass.ask(question, actions) else { return Ok(()) };
            let is_ready = |pod: &&Object| views::Pod(pod).is_ready();
            let ready: BTreeSet<&str> = shown.objects.iter().filter(is_ready).map(Object::name).collect();
            live.sort_by_key(|(number, pod)| (ready.contains(pod.name()), Reverse(**number)));
        }
        for (_, pod) in finished.into_iter().chain(live.drain(..surplus)) {
            actions.push(Delete::new(Reference::to(POD, pod)));
        }

        let mut there: BTreeSet<usize> = live.into_iter().map(|(number, _)| *number).collect();
        let lowest = (0..).filter(|number| !there.contains(number)).take(size.saturating_sub(there.len()));
        // A pod that is going, because somebody deleted it or it has finished, comes again under its own number.
        for number in lowest.filter(|number| !pods.contains_key(number)).collect::<Vec<_>>() {
            let pod = format!("{name}-{number}");
            // The status of this same pass has it, but for one that was refused and may be again.
            there.extend((!pass.was_rejected(POD, &pod)).then_some(number));
            actions.apply(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "labels": {LABEL: name}},
                "spec": {"containers": [{
                    "name": "busybox", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sleep", "3600"],
                }]},
            }));
        }

        let replicas = there.len();
        let pod_names = there.iter().map(|number| format!("{name}-{number}")).collect();
        let reason = if replicas == size { "AllPods" } else { "MissingPods" };
        let ready =
            Condition::new("Ready", replicas == size, reason, format!("{replicas} of {size} pods are there"));
        let status = PodReplicaStatus { pod_names, replicas, selector };
        actions.push(pass.set_status(&status).condition(ready));
        Ok(())
    }
}

export!(PodReplica);
