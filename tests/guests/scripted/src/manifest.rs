//! The manifest. What the test wrote may hold `controller`, fields that replace those of the only controller, `alsoOwns`,
//! children beside the usual ones, `scope` of the primary (`Namespaced` or `Cluster`), `statusSubresource`: false for a CRD
//! without one, `admission` (fields of the only guard, that of its own kind), and `crds` in place of its own.

use serde_json::{Value, json};

/// Groups, kinds and plurals of the children, unless the test names others.
const CHILDREN: [(&str, &str, &str); 13] = [
    ("", "ConfigMap", "configmaps"),
    ("", "Secret", "secrets"),
    ("", "Service", "services"),
    ("", "ServiceAccount", "serviceaccounts"),
    ("", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "Pod", "pods"),
    ("apps", "StatefulSet", "statefulsets"),
    ("apps", "Deployment", "deployments"),
    ("batch", "Job", "jobs"),
    ("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    ("networking.k8s.io", "Ingress", "ingresses"),
    ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    ("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
];

pub(crate) fn manifest(written: &Value) -> Value {
    let word = |field: &str, default: &str| written[field].as_str().unwrap_or(default).to_owned();
    let (name, kind) = (word("name", "scripted"), word("kind", "Scripted"));
    let (version, scope) = (word("version", "1"), word("scope", "Namespaced"));
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let children = CHILDREN.map(|(group, kind, plural)| {
        // The only one of them that has another version.
        let version = if group == "autoscaling" { "v2" } else { "v1" };
        json!({ "resource": { "group": group, "version": version, "kind": kind, "plural": plural } })
    });
    let mut controller = json!({
        "primary": {
            "group": "test.pilothouse.dev", "version": "v1", "kind": kind, "plural": plural, "scope": scope,
        },
        "children": children,
        // Without a selector: for look-ups alone.
        "related": [{ "name": "config-maps", "resource": { "version": "v1", "kind": "ConfigMap", "plural": "configmaps" } }],
        "finalizer": "test.pilothouse.dev/scripted",
    });
    if let (Some(children), Some(more)) =
        (controller["children"].as_array_mut(), written["alsoOwns"].as_array())
    {
        children.extend(more.iter().cloned());
    }
    for (field, value) in written["controller"].as_object().into_iter().flatten() {
        controller[field] = value.clone();
    }
    let subresources =
        if written["statusSubresource"] == false { json!({}) } else { json!({ "status": {} }) };
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.test.pilothouse.dev") },
        "spec": {
            "group": "test.pilothouse.dev",
            "scope": scope,
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": subresources,
                "schema": { "openAPIV3Schema": schema() },
            }],
        },
    });
    let crds = written.get("crds").cloned().unwrap_or_else(|| json!([crd]));
    let mut manifest = json!({ "name": name, "version": version, "crds": crds, "controllers": [controller] });
    if let Some(fields) = written["admission"].as_object() {
        let mut guard = json!({ "resource": manifest["controllers"][0]["primary"] });
        for (field, value) in fields {
            guard[field] = value.clone();
        }
        manifest["admission"] = json!([guard]);
    }
    manifest
}

fn schema() -> Value {
    let text = || json!({ "type": "string" });
    let integer = || json!({ "type": "integer", "format": "int64" });
    json!({
        "type": "object",
        "properties": {
            "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "status": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "observedGeneration": integer(),
                    "conditions": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["type"],
                        "items": {
                            "type": "object",
                            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
                            "properties": {
                                "type": text(),
                                "status": text(),
                                "reason": text(),
                                "message": text(),
                                "observedGeneration": integer(),
                                "lastTransitionTime": { "type": "string", "format": "date-time" },
                            },
                        },
                    },
                },
            },
        },
    })
}
