//! Plugins that break one rule each: the suite finds each one out, by the name of the rule, and says where.
//!
//! Determinism has no such plugin: the sandbox leaves a guest nothing that differs from call to call. That the comparison
//! would find it is a test beside it.

use std::path::PathBuf;

use pilothouse_conformance::{Checked, check};
use pilothouse_guests::Scripted;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A plugin that does what the spec of its resource says, and that resource as a case.
struct Broken {
    files: TempDir,
    component: PathBuf,
}

impl Broken {
    fn new(manifest: Value) -> Self {
        let files = tempfile::tempdir().unwrap();
        let component = files.path().join("scripted.wasm");
        let scripted = Scripted { name: "scripted", kind: "Scripted", version: "1", manifest };
        std::fs::write(&component, scripted.component()).unwrap();
        // A loop need not take its whole second.
        std::fs::write(files.path().join("scripted.yaml"), "limits: {cpuMs: 200}\n").unwrap();
        Self { files, component }
    }

    /// What the suite says of this resource, and of objects beside it.
    fn check(&self, spec: Value, others: &[Value]) -> Checked {
        self.check_resource(json!({"metadata": {"name": "web"}, "spec": spec}), others)
    }

    fn check_resource(&self, mut resource: Value, others: &[Value]) -> Checked {
        resource["apiVersion"] = json!("test.pilothouse.dev/v1");
        resource["kind"] = json!("Scripted");
        let documents: Vec<String> = [&resource].into_iter().chain(others).map(Value::to_string).collect();
        let case = self.files.path().join("case.yaml");
        std::fs::write(&case, documents.join("\n---\n") + "\n").unwrap();
        check(&self.component, &[case], &["--record"])
    }
}

fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}})
}

#[track_caller]
fn breaks(checked: &Checked, rule: &str, part: &str) {
    assert_eq!(checked.broken().into_iter().collect::<Vec<_>>(), [rule], "{}", checked.text);
    assert!(checked.text.contains(part), "`{part}` is not in:\n{}", checked.text);
    assert_ne!(checked.code, Some(0));
}

#[test]
fn a_plugin_that_keeps_the_rules_passes() {
    let plugin = Broken::new(json!({}));
    let spec = json!({
        "children": [config_map("$(name)", "a")],
        "actions": [{"generateSecret": {"name": "$(name)-keys", "random": {"password": 32}}}],
        "status": {"ready": true, "conditions": [{"type": "Ready", "status": "True", "reason": "Yes"}]},
        "requeueAfterMs": 5000,
    });
    let checked = plugin.check(spec, &[]);
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    assert!(checked.text.contains("at rest after 1 pass"), "{}", checked.text);
    // What was recorded is what comes again.
    let case = plugin.files.path().join("case.yaml");
    let again = check(&plugin.component, &[case], &[]);
    assert_eq!(again.code, Some(0), "{}", again.text);
}

#[test]
fn another_outcome_than_the_expected_one() {
    let plugin = Broken::new(json!({}));
    plugin.check(json!({"children": [config_map("$(name)", "a"), config_map("$(name)-2", "b")]}), &[]);
    let case = plugin.files.path().join("case.yaml");
    let text = std::fs::read_to_string(&case).unwrap();
    let (resource, outcome) = text.split_once("\n---\n").unwrap();
    std::fs::write(&case, format!("{resource}\n---\n{}", outcome.replace("text: b", "text: c"))).unwrap();
    let checked = check(&plugin.component, &[case], &[]);
    breaks(&checked, "expected", "case.yaml:");
    let part =
        "actions[1] apply ConfigMap web-2.object.data.text\n      expected: \"c\"\n      got:      \"b\"";
    assert!(checked.text.contains(part), "{}", checked.text);
}

#[test]
fn no_rest() {
    let plugin = Broken::new(json!({}));
    let growing = json!({"grow": {"to": 100, "child": config_map("$(name)-$(now)", "a")}});
    breaks(&plugin.check(growing, &[]), "idempotence", "create ConfigMap web-2025-01-01T00:00:09Z");
    let clock = json!({"children": [config_map("$(name)", "$(now)")]});
    breaks(&plugin.check(clock, &[]), "idempotence", "ConfigMap web: data.text");
    // Two that take turns.
    let turns = json!({"children": [config_map("$(name)", "a")], "actions": [
        {"delete": {"apiVersion": "v1", "kind": "ConfigMap", "name": "$(name)"}}]});
    breaks(&plugin.check(turns, &[]), "idempotence", "delete ConfigMap web");
}

#[test]
fn limits_and_traps() {
    let plugin = Broken::new(json!({}));
    for (behaviour, rule, part) in [
        ("loop", "limits", "used more than its 200 ms of CPU time"),
        ("allocate", "limits", "needs more than its 64 MiB of memory"),
        ("trap", "trap", "trapped"),
    ] {
        let checked = plugin.check(json!({"behaviour": behaviour}), &[]);
        breaks(&checked, rule, part);
        assert_eq!(checked.code, Some(3));
    }
    let many: Vec<Value> =
        (0..17).map(|at| json!({"recordEvent": {"reason": format!("R{at}"), "message": ""}})).collect();
    breaks(&plugin.check(json!({"actions": many}), &[]), "limits", "more than 16 events");
    let asking = json!({"actions": [{"lookUp": {"id": "q", "apiVersion": "v1", "kind": "ConfigMap"}}]});
    breaks(&plugin.check(asking, &[]), "limits", "rounds of look-ups");
}

#[test]
fn a_status_that_is_not_the_plugins_to_write() {
    let plugin = Broken::new(json!({}));
    let status = |status: Value| plugin.check(json!({"status": status}), &[]);
    breaks(&status(json!({"at": "$(now)"})), "status", "status.at");
    let forged = json!({"conditions": [{"type": "Reconciled", "status": "True", "reason": "X"}]});
    breaks(&status(forged), "status", "`Reconciled` is the host's own");
    breaks(
        &status(json!({"observedGeneration": 7})),
        "status",
        "status.observedGeneration: 7: the host writes it",
    );
}

#[test]
fn a_status_that_the_schema_does_not_declare() {
    let plugin = Broken::new(json!({"crds": [crd(&json!({"x-kubernetes-preserve-unknown-fields": true}))]}));
    let checked = plugin.check(json!({"status": {"ready": 1, "more": 1}}), &[]);
    breaks(&checked, "status", "status.more: the schema does not know it");
    assert!(checked.text.contains("status.ready: boolean would be right"), "{}", checked.text);
}

/// The API server would refuse the whole status for it, in each pass.
#[test]
fn a_condition_that_the_schema_does_not_allow() {
    let mut crd = crd(&json!({"x-kubernetes-preserve-unknown-fields": true}));
    let reason =
        json!({"type": "string", "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"});
    let condition = json!({"type": "object", "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {"type": {"type": "string"}, "status": {"type": "string"}, "reason": reason,
            "message": {"type": "string", "maxLength": 5}, "lastTransitionTime": {"type": "string"},
            "observedGeneration": {"type": "integer"}}});
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"] =
        json!({"type": "array", "items": condition});
    let plugin = Broken::new(json!({"crds": [crd]}));
    let status = |reason: &str, message: &str| {
        let ready = json!({"type": "Ready", "status": "True", "reason": reason, "message": message});
        plugin.check(json!({"status": {"conditions": [ready, {"type": "Old", "status": null}]}}), &[])
    };
    breaks(&status("All good", ""), "status", "status.conditions[0].reason: \"All good\" does not match");
    breaks(
        &status("Good", "longer"),
        "status",
        "status.conditions[0].message: 6 characters, 5 or less would be right",
    );
    let checked = status("Good", "");
    assert_eq!(checked.code, Some(0), "{}", checked.text);
}

#[test]
fn a_deletion_that_does_not_end_or_makes_something() {
    let plugin = Broken::new(json!({}));
    let ends = |deleting: Value| plugin.check(json!({"deleting": deleting}), &[]);
    breaks(&ends(json!({"requeueAfterMs": 1000})), "finalizing", "not released after 10 passes");
    let making = json!({"children": [config_map("$(name)", "a")], "actions": [{"release": true}]});
    breaks(&ends(making), "finalizing", "creates ConfigMap web while the resource is being deleted");
    let early = json!({"actions": [{"release": true}]});
    breaks(&plugin.check(early, &[]), "finalizing", "action 0 (release)");
    // One that needs several passes, and time, is right.
    let slow = json!({"actions": [{"release": true}], "needs": {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone"}});
    let gone = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gone"}});
    let checked = plugin.check(json!({"deleting": slow}), &[gone]);
    assert_eq!(checked.code, Some(0), "{}", checked.text);
}

#[test]
fn wrong_resources_that_are_not_called_invalid() {
    let spec = json!({"required": ["size"], "properties": {"size": {"type": "integer"}}});
    let plugin = Broken::new(json!({"crds": [crd(&spec)]}));
    let checked = plugin.check(json!({"size": 1}), &[]);
    breaks(&checked, "invalid", "spec.size is missing: it goes on, where failure `invalid` would be right");
    assert!(checked.text.contains("spec.size is a list: it goes on"), "{}", checked.text);
}

#[test]
fn a_wrong_resource_that_can_never_be_deleted() {
    let size = json!({"required": ["size"], "properties": {"size": {"type": "integer"}}});
    let plugin = Broken::new(json!({"crds": [crd(&size)]}));
    let ends = |failure: Value| {
        let reads = |failure: &Value| json!({"field": "size", "failure": failure});
        let script = json!({
            "reads": reads(&json!({"invalid": "spec.size: a whole number would be right"})),
            "deleting": {"reads": reads(&failure), "actions": [{"release": true}]},
        });
        let annotations = json!({"test.pilothouse.dev/script": script.to_string()});
        plugin.check_resource(
            json!({"metadata": {"name": "web", "annotations": annotations}, "spec": {"size": 1}}),
            &[],
        )
    };
    // Right in any other pass, and here a `kubectl delete` that hangs and does not say why.
    let checked = ends(json!({"invalid": "spec.size: a whole number would be right"}));
    breaks(&checked, "finalizing", "spec.size is missing, then deleted: it never goes: Invalid(");
    assert!(checked.text.contains("spec is a text, then deleted"), "{}", checked.text);
    breaks(
        &ends(json!({"retry": "no size"})),
        "finalizing",
        "spec.size is a list, then deleted: it never goes: Retry(",
    );
    let way_out =
        "spec.size: a whole number would be right; or take the finalizer test.pilothouse.dev/scripted off";
    let checked = ends(json!({"invalid": way_out}));
    assert_eq!(checked.code, Some(0), "{}", checked.text);
}

#[test]
fn names_that_two_resources_share_or_no_pass_repeats() {
    let plugin = Broken::new(json!({}));
    let named = |name: &str| {
        plugin.check(json!({"children": [{"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": {"a": "$(uid)"}}}], "deleting": {"actions": [{"release": true}]}}), &[])
    };
    assert_eq!(named("$(name)-x").code, Some(0));
    let checked = plugin.check(json!({"grow": {"to": 1, "child": config_map("$(name)-$(seed)", "a")}}), &[]);
    breaks(&checked, "names", "with one seed and not with another");
}

#[test]
fn a_child_that_every_resource_has() {
    // The script is in an annotation of a kind whose spec is not free, as the spec would give the name.
    let plugin = Broken::new(json!({"controller": {"children": [
        {"resource": {"version": "v1", "kind": "ConfigMap", "plural": "configmaps"}}]}}));
    let script = json!({"children": [config_map("the-only-one", "a")]}).to_string();
    let metadata = json!({"name": "web", "annotations": {"test.pilothouse.dev/script": script}});
    let checked = plugin.check_resource(json!({"metadata": metadata, "spec": {}}), &[]);
    breaks(&checked, "names", "ConfigMap the-only-one is a child of web and of web-other alike");
}

#[test]
fn actions_that_nobody_allowed() {
    let plugin = Broken::new(json!({}));
    let child = |child: Value| plugin.check(json!({"children": [child]}), &[]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"}});
    breaks(&child(role), "manifest", "ClusterRole.v1.rbac.authorization.k8s.io is not among the children");
    let elsewhere = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "kube-system"}});
    breaks(&child(elsewhere), "namespace", "namespace `kube-system` is not that of the primary");
    let with_status = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {}});
    breaks(&child(with_status), "actions", "object.status: belongs to another controller");
    let unknown = json!({"actions": [{"extension": {"name": "example.com/magic", "body": {}}}]});
    breaks(&plugin.check(unknown, &[]), "actions", "`example.com/magic` is not known to this host");
}

#[test]
fn a_crd_that_the_api_server_would_refuse_and_a_case_that_it_would() {
    let mut wrong = crd(&json!({"properties": {"size": {}}}));
    wrong["metadata"]["name"] = json!("scripts.test.pilothouse.dev");
    let checked = Broken::new(json!({"crds": [wrong]})).check(json!({}), &[]);
    breaks(&checked, "schema", "crds[0].metadata.name: `scripteds.test.pilothouse.dev` would be right");
    assert!(checked.text.contains(".properties.spec.properties.size: has no type"), "{}", checked.text);
    let plugin = Broken::new(json!({"crds": [crd(&json!({}))]}));
    let checked = plugin.check(json!({"sizee": 1}), &[]);
    breaks(&checked, "schema", "of the resource: spec.sizee: the schema does not know it");
    let plugin = Broken::new(json!({"crds": [crd(&json!({"maxProperties": 0}))]}));
    let checked = plugin.check(json!({"status": {}}), &[]);
    breaks(&checked, "schema", "of the resource: spec: 1 fields, 0 or less would be right");
}

/// The scripted kind, with this in the schema of its spec, and one field of the status.
fn crd(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["type"] = json!("object");
    let schema = json!({"type": "object", "properties": {
        "spec": spec, "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "scripteds.test.pilothouse.dev"},
        "spec": {
            "group": "test.pilothouse.dev", "scope": "Namespaced",
            "names": {"kind": "Scripted", "plural": "scripteds", "singular": "scripted"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}
