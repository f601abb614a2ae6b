//! `check` says of a schema what the API server says of it: an author learns offline what `kubectl apply` would refuse.

use std::fs;

use pilothouse_guests::Scripted;
use serde_json::{Value, json};

use crate::support::{World, pilothouse, plugin, try_run};

/// The definition of a kind whose spec has this one field.
fn crd(field: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "drafts.test.pilothouse.dev"},
        "spec": {
            "group": "test.pilothouse.dev", "scope": "Namespaced",
            "names": {"kind": "Draft", "plural": "drafts", "singular": "draft", "listKind": "DraftList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"field": field}}}}}}],
        },
    })
}

/// What `pilothouse check` finds in the schema; none if it finds nothing.
async fn found(crd: &Value) -> Option<String> {
    let files = tempfile::tempdir().unwrap();
    let component = files.path().join("drafts.wasm");
    let scripted = Scripted { name: "drafts", kind: "Draft", version: "1", manifest: json!({"crds": [crd]}) };
    fs::write(&component, scripted.component()).unwrap();
    let case = files.path().join("case.yaml");
    let resource = json!({"apiVersion": "test.pilothouse.dev/v1", "kind": "Draft", "metadata": {"name": "a"}, "spec": {}});
    fs::write(&case, resource.to_string()).unwrap();
    let flags = ["check".as_ref(), component.as_os_str(), case.as_os_str(), "--record".as_ref()];
    let output = try_run(&pilothouse(), flags).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("drafts 1: 1 cases"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // The plugin does not look at its spec, so that other rules are broken.
    text.lines().find_map(|line| line.strip_prefix("  schema: ").map(str::to_owned))
}

#[tokio::test]
async fn check_refuses_the_schemas_that_the_api_server_refuses() {
    let world = World::granted("schemas", &[plugin("config-map")]).await;
    let text = json!({"type": "string"});
    let keyed = |item: Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item});
    let named = json!({"type": "object", "required": ["name"], "properties": {"name": text}});
    let defaulted = json!({"type": "object", "properties": {"name": {"type": "string", "default": "a"}}});
    let unnamed = json!({"type": "object", "properties": {"name": text}});
    for (field, is_right) in [
        (json!({}), false),
        (json!({"type": "array"}), false),
        (json!({"type": "array", "items": {}}), false),
        (json!({"type": "array", "items": text, "uniqueItems": true}), false),
        (json!({"type": "object", "properties": {"a": text}, "additionalProperties": text}), false),
        (json!({"type": "object", "additionalProperties": false}), true),
        (json!({"type": "object", "patternProperties": {"a": text}}), false),
        (json!({"type": "object", "definitions": {"a": text}}), false),
        (json!({"type": "object", "dependencies": {"a": ["b"]}}), false),
        (json!({"$ref": "#/definitions/a"}), false),
        (json!({"type": "string", "id": "a"}), false),
        (keyed(unnamed), false),
        (keyed(named), true),
        (keyed(defaulted), true),
        (text.clone(), true),
        (json!({"type": "integer", "not": {"enum": [0]}}), true),
        (json!({"x-kubernetes-int-or-string": true}), true),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), true),
        (json!({"type": "object", "additionalProperties": true}), true),
        (json!({"type": "object", "additionalProperties": text}), true),
        (json!({"type": "array", "items": text, "x-kubernetes-list-type": "set"}), true),
    ] {
        let crd = crd(&field);
        let server =
            world.try_kubectl("create --dry-run=server --validate=false -f -", &crd.to_string()).await;
        let said = String::from_utf8_lossy(&server.stderr);
        assert_eq!(server.status.success(), is_right, "the API server of {field}: {said}");
        let found = found(&crd).await;
        assert_eq!(found.is_none(), is_right, "`check` of {field}: {found:?}; the API server: {said}");
    }
}
