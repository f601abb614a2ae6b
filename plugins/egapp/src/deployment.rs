//! Deployment NAME: the pods of an application.
//!
//! Its selector cannot change, so it is made of the name alone. The resource's own labels go on the Deployment and its
//! pods besides, and follow their edits as any change of the template does: pod by pod.

use pilothouse_sdk::prelude::*;

use crate::spec::{EgApp, Identity};

/// The selector in kubectl's syntax.
pub(crate) fn selector(name: &str) -> String {
    ["app.kubernetes.io/name=egapp,app.kubernetes.io/instance=", name].concat()
}

pub(crate) fn object(pass: &Pass<EgApp>, identity: &Identity) -> Value {
    let (name, spec) = (pass.name(), &pass.spec);
    let mut labels = pass.primary.at("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    labels["app.kubernetes.io/name"] = json!("egapp");
    labels["app.kubernetes.io/instance"] = json!(name);
    let (cpu, memory) = spec.instance_type.resources();
    let container = json!({
        "name": identity.app_id,
        "image": spec.image.as_deref().unwrap_or("gcr.io/kuar-demo/kuard-amd64:1"),
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        // Any image can be asked whether it listens.
        "readinessProbe": {"tcpSocket": {"port": "http"}},
        // Memory cannot be taken back, so what is reserved is also the limit; CPU that is idle is anybody's.
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}},
        "securityContext": {"allowPrivilegeEscalation": false},
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": spec.replica_count,
            "selector": {"matchLabels": {"app.kubernetes.io/name": "egapp", "app.kubernetes.io/instance": name}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })
}
