//! The three Services: NAME for the instances' own names, NAME-rw for writes, NAME-ro for reads.
//!
//! A wrong endpoint is worse than none: a write that reaches the wrong instance is lost. At this level the instances
//! do not replicate, so writes go to ordinal 0 and nowhere else, and NAME-ro selects the role that no pod has yet.

use pilothouse_sdk::prelude::*;

use crate::names::{Names, PORT, PORT_NAME};

/// Gives each instance a name, also before it is ready: instances find each other by it.
pub(crate) fn headless(names: Names<'_>) -> Value {
    let mut service = service(names, names.cluster, &names.selector());
    service["spec"]["clusterIP"] = json!("None");
    service["spec"]["publishNotReadyAddresses"] = json!(true);
    service
}

pub(crate) fn read_write(names: Names<'_>) -> Value {
    let mut selector = names.selector();
    selector["statefulset.kubernetes.io/pod-name"] = json!(names.first_pod());
    service(names, &names.rw(), &selector)
}

pub(crate) fn read_only(names: Names<'_>) -> Value {
    let mut selector = names.selector();
    selector["role"] = json!("replica");
    service(names, &names.ro(), &selector)
}

fn service(names: Names<'_>, name: &str, selector: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(name),
        "spec": {
            "selector": selector,
            "ports": [{"name": PORT_NAME, "port": PORT, "protocol": "TCP", "targetPort": PORT_NAME}],
        },
    })
}
