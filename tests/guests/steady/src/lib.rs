//! A plugin that does what it should: five ConfigMaps and a status for each object, from its spec. What an ordinary
//! plugin costs is measured with it.

#![allow(missing_docs, unsafe_code, reason = "generated bindings")]
#![allow(clippy::pedantic, reason = "generated bindings")]

use serde_json::{Value, json};

wit_bindgen::generate!({ path: "../../../wit", world: "plugin" });

use exports::pilothouse::operator::reconciler::{Guest, Observed};
use pilothouse::operator::types::{Action, Apply, Desired, Failure, Outcome};

/// Children of each object.
const CHILDREN: usize = 5;

struct Steady;

export!(Steady);

impl Guest for Steady {
    fn describe() -> String {
        json!({
            "name": "steady",
            "version": "0.1.0",
            "controllers": [{
                "primary": {
                    "group": "test.pilothouse.dev", "version": "v1", "kind": "Steady", "plural": "steadies",
                },
                "children": [{ "resource": { "version": "v1", "kind": "ConfigMap", "plural": "configmaps" } }],
            }],
        })
        .to_string()
    }

    fn reconcile(desired: Desired, observed: Observed) -> Outcome {
        let primary: Value = match serde_json::from_str(&desired.primary) {
            Ok(primary) => primary,
            Err(error) => {
                return Outcome { actions: Vec::new(), failure: Some(Failure::Invalid(error.to_string())) };
            }
        };
        let present = observed
            .children
            .iter()
            .filter_map(|child| serde_json::from_str::<Value>(child).ok())
            .filter(|child| child["data"]["text"] == primary["spec"]["text"])
            .count();
        let mut actions: Vec<Action> = (0..CHILDREN).map(|at| child(&primary, at)).collect();
        let status = json!({ "ready": present, "wanted": CHILDREN });
        actions.push(Action::SetStatus(status.to_string()));
        Outcome { actions, failure: None }
    }
}

fn child(primary: &Value, at: usize) -> Action {
    let name = primary["metadata"]["name"].as_str().unwrap_or_default();
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": format!("{name}-{at}"), "labels": { "app.kubernetes.io/instance": name } },
        "data": { "text": primary["spec"]["text"], "position": at.to_string() },
    });
    Action::Apply(Apply { object: object.to_string(), options: String::new() })
}
