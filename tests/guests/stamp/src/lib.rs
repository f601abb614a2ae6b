//! A plugin that is whatever its bytes say: tests write name, kind and version into the component, where [`IDENTITY`]
//! lies, and have as many plugins and versions as they need from one build. It makes one ConfigMap for each object,
//! which shows who made it last: the version and the plugin's configuration beside the object's own text.

#![allow(missing_docs, unsafe_code, reason = "generated bindings")]
#![allow(clippy::pedantic, reason = "generated bindings")]

use std::hint::black_box;

use serde_json::{Value, json};

wit_bindgen::generate!({ path: "../../../wit", world: "plugin" });

use exports::pilothouse::operator::reconciler::{Guest, Observed};
use pilothouse::operator::types::{Action, Apply, Desired, Failure, Outcome};

/// Four words, padded with dots: name, kind, version, and `narrow` or `wide`.
#[used]
static IDENTITY: [u8; 96] =
    *b"identity=stamp Stamp 0 narrow...................................................................";

struct Identity {
    name: String,
    kind: String,
    version: String,
    /// Another child kind stands in the manifest. Nothing of it is made: it is about the watches.
    wide: bool,
}

impl Identity {
    fn read() -> Self {
        let text = std::str::from_utf8(black_box(&IDENTITY)).unwrap_or_default();
        let mut words = text.trim_start_matches("identity=").trim_end_matches('.').split(' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        Self { name: word(), kind: word(), version: word(), wide: word() == "wide" }
    }

    fn manifest(&self) -> Value {
        let singular = self.kind.to_lowercase();
        let plural = format!("{singular}s");
        let mut children =
            vec![json!({ "resource": { "version": "v1", "kind": "ConfigMap", "plural": "configmaps" } })];
        if self.wide {
            children
                .push(json!({ "resource": { "version": "v1", "kind": "Service", "plural": "services" } }));
        }
        json!({
            "name": self.name,
            "version": self.version,
            "crds": [{
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": { "name": format!("{plural}.test.pilothouse.dev") },
                "spec": {
                    "group": "test.pilothouse.dev",
                    "scope": "Namespaced",
                    "names": { "kind": self.kind, "listKind": format!("{}List", self.kind), "plural": plural, "singular": singular },
                    "versions": [{
                        "name": "v1",
                        "served": true,
                        "storage": true,
                        "subresources": { "status": {} },
                        "additionalPrinterColumns": [
                            { "name": format!("Version-{}", self.version), "type": "string", "jsonPath": ".spec.text" },
                        ],
                        "schema": { "openAPIV3Schema": schema() },
                    }],
                },
            }],
            "controllers": [{
                "primary": { "group": "test.pilothouse.dev", "version": "v1", "kind": self.kind, "plural": plural },
                "children": children,
            }],
        })
    }
}

fn schema() -> Value {
    let text = || json!({ "type": "string" });
    let integer = || json!({ "type": "integer", "format": "int64" });
    json!({
        "type": "object",
        "properties": {
            "spec": { "type": "object", "properties": { "text": text(), "behaviour": text(), "amount": integer() } },
            "status": {
                "type": "object",
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

struct Stamp;

export!(Stamp);

impl Guest for Stamp {
    fn describe() -> String {
        Identity::read().manifest().to_string()
    }

    fn reconcile(desired: Desired, _: Observed) -> Outcome {
        let primary: Value = match serde_json::from_str(&desired.primary) {
            Ok(primary) => primary,
            Err(error) => {
                return Outcome { actions: Vec::new(), failure: Some(Failure::Invalid(error.to_string())) };
            }
        };
        let config_map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": primary["metadata"]["name"] },
            "data": {
                "text": primary["spec"]["text"].as_str().unwrap_or_default(),
                "version": Identity::read().version,
                "config": desired.config,
            },
        });
        let apply = Apply { object: config_map.to_string(), options: String::new() };
        Outcome { actions: vec![Action::Apply(apply)], failure: None }
    }
}
