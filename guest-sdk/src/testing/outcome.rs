//! [`Outcome`]: what a pass decided, to be looked at.

use serde_json::{Map, Value, json};

use crate::action::{Action, Actions, Event, SecretTemplate};
use crate::bindings::pilothouse::operator::types as wit;
use crate::condition::Condition;
use crate::glue;
use crate::kinds::Resource;
use crate::log::Level;
use crate::reconciler::Failure;

/// What a pass decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What to do, in order.
    pub actions: Actions,
    /// Why the pass could not reach its goal.
    pub failure: Option<Failure>,
    /// Lines that it wrote to the log.
    pub log: Vec<(Level, String)>,
}

impl Outcome {
    /// The object that the pass applies, if it applies one of this kind and name.
    pub fn applied(&self, kind: Resource, name: &str) -> Option<&Value> {
        self.actions.as_slice().iter().find_map(|action| match action {
            Action::Apply(apply)
                if kind.is_kind_of(&apply.object) && apply.object["metadata"]["name"] == name =>
            {
                Some(&apply.object)
            }
            _ => None,
        })
    }

    /// The Secret template of this name.
    pub fn secret(&self, name: &str) -> Option<&SecretTemplate> {
        self.actions.as_slice().iter().find_map(|action| match action {
            Action::GenerateSecret(template) if template.name == name => Some(template),
            _ => None,
        })
    }

    /// The status that it sets.
    pub fn status(&self) -> Option<Value> {
        self.actions.as_slice().iter().find_map(|action| match action {
            Action::SetStatus(status) => Some(status.to_json()),
            _ => None,
        })
    }

    /// A condition of the status that it sets.
    pub fn condition(&self, name: &str) -> Option<Condition> {
        Condition::find(&json!({"status": self.status()?}), name)
    }

    /// The events that it records.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.actions.as_slice().iter().filter_map(|action| match action {
            Action::Event(event) => Some(event),
            _ => None,
        })
    }

    /// All of it as JSON, for goldens: as it crosses the border to the host, but with JSON texts parsed.
    ///
    /// # Panics
    /// Never: texts that this crate wrote are JSON.
    pub fn to_json(&self) -> Value {
        let actions: Vec<_> =
            self.actions.clone().into_iter().map(|action| to_json(glue::action(action))).collect();
        let failure = self.failure.as_ref().map(|failure| match failure {
            Failure::Invalid(text) => json!({"invalid": text}),
            Failure::Retry(text) => json!({"retry": text}),
        });
        json!({"actions": actions, "failure": failure})
    }
}

fn to_json(action: wit::Action) -> Value {
    match action {
        wit::Action::Apply(apply) => {
            json!({"apply": with_options(json!({"object": parse(&apply.object)}), &apply.options)})
        }
        wit::Action::Delete(delete) => {
            json!({"delete": with_options(json!({"target": reference(&delete.target)}), &delete.options)})
        }
        wit::Action::PatchTarget(patch) => {
            let body = json!({"target": reference(&patch.target), "patch": parse(&patch.patch)});
            json!({"patch-target": with_options(body, &patch.options)})
        }
        wit::Action::GenerateSecret(secret) => {
            let pairs = |pairs: &[wit::KeyValue]| -> Map<String, Value> {
                pairs.iter().map(|pair| (pair.key.clone(), json!(pair.value))).collect()
            };
            let random: Map<String, Value> = secret
                .random
                .iter()
                .map(|key| (key.key.clone(), json!(format!("{} characters, {:?}", key.length, key.alphabet))))
                .collect();
            let body = json!({
                "name": secret.name,
                "literals": pairs(&secret.literals),
                "random": random,
                "composed": pairs(&secret.composed),
            });
            json!({"generate-secret": with_options(body, &secret.options)})
        }
        wit::Action::SetStatus(status) => json!({"set-status": parse(&status)}),
        wit::Action::RecordEvent(event) => json!({"record-event": {
            "severity": match event.severity {
                wit::Severity::Normal => "normal",
                wit::Severity::Warning => "warning",
            },
            "reason": event.reason,
            "message": event.message,
        }}),
        wit::Action::LookUp(query) => {
            let body = json!({
                "id": query.id, "kind": query.kind.kind, "namespace": query.namespace, "name": query.name,
            });
            json!({"look-up": with_options(body, &query.options)})
        }
        wit::Action::RequeueAfter(milliseconds) => json!({"requeue-after": milliseconds}),
        wit::Action::Release => json!("release"),
        wit::Action::Extension(extension) => {
            json!({"extension": {"name": extension.name, "body": parse(&extension.body)}})
        }
    }
}

fn reference(target: &wit::Reference) -> Value {
    json!({
        "kind": target.kind.kind, "namespace": target.namespace, "name": target.name, "uid": target.uid,
    })
}

fn with_options(mut body: Value, options: &str) -> Value {
    if !options.is_empty() {
        body["options"] = parse(options);
    }
    body
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("texts that this crate wrote are JSON")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::action::{
        Alphabet, Apply, Delete, Extension, LookUp, OnImmutable, PatchTarget, Propagation, Reference,
    };
    use crate::kinds::{CONFIG_MAP, POD};

    #[test]
    fn each_action_and_option_crosses_the_border_under_the_contracts_name() {
        let mut actions = Actions::default();
        let pod = Reference::new(POD, "a");
        let first = actions.place(Apply::new(CONFIG_MAP.object("a")));
        let apply = Apply::new(json!({})).create_only().on_immutable(OnImmutable::RecreateOrphan);
        let applied = actions.place(apply.after(first));
        let delete = Delete::new(pod.clone()).propagation(Propagation::Foreground).grace_period_seconds(5);
        actions.push(delete.after(first).after(applied));
        actions.push(PatchTarget::new(pod, json!({"x": 1})).of_status());
        actions.push(
            SecretTemplate::new("s")
                .literal("user", "app")
                .random("key", 16, Alphabet::Hexadecimal)
                .label("l", "v"),
        );
        actions.push(Event::warning("Late", "too late"));
        actions.push(LookUp::all("q", POD).namespace("n").selector("a=b").limit(7));
        actions.requeue_after(Duration::from_millis(1500));
        actions.push(Extension { name: "example.com/x".to_owned(), body: json!([1]) });
        actions.release();
        let outcome =
            Outcome { actions, failure: Some(Failure::invalid("spec.a", "is wrong")), log: Vec::new() };

        let target = json!({"kind": "Pod", "namespace": null, "name": "a", "uid": null});
        assert_eq!(
            outcome.to_json(),
            json!({
                "actions": [
                    {"apply": {"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}}},
                    {"apply": {"object": {}, "options": {
                        "createOnly": true, "onImmutable": "recreate-orphan", "after": [0],
                    }}},
                    {"delete": {"target": target, "options": {
                        "propagation": "foreground", "gracePeriodSeconds": 5, "after": [0, 1],
                    }}},
                    {"patch-target": {"target": target, "patch": {"x": 1}, "options": {"subresource": "status"}}},
                    {"generate-secret": {
                        "name": "s", "literals": {"user": "app"}, "random": {"key": "16 characters, Alphabet::Hexadecimal"},
                        "composed": {}, "options": {"labels": {"l": "v"}},
                    }},
                    {"record-event": {"severity": "warning", "reason": "Late", "message": "too late"}},
                    {"look-up": {
                        "id": "q", "kind": "Pod", "namespace": "n", "name": null,
                        "options": {"labelSelector": "a=b", "limit": 7},
                    }},
                    {"requeue-after": 1500},
                    {"extension": {"name": "example.com/x", "body": [1]}},
                    "release",
                ],
                "failure": {"invalid": "spec.a: is wrong"},
            })
        );
    }
}
