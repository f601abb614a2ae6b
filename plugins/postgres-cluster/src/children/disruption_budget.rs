//! PodDisruptionBudget NAME: a drain takes one instance at a time.
//!
//! It says how many may be missing rather than how many must remain: so it holds for any number of replicas, a change
//! of `spec.replicas` does not write it, and the node of a single instance can still be drained.

use pilothouse_sdk::prelude::*;

use crate::names::Names;

pub(crate) fn object(names: Names<'_>) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": names.metadata(names.cluster),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": names.selector()},
            // An instance that is broken anyway must not keep a node from being drained.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    })
}
