//! Run a reconciler natively, with plain values: in the author's own `cargo test`, without a cluster, a host or Wasm.
//!
//! [`Cluster`] pretends to be the host and the API server around one primary. A pass goes through the same code as in
//! a component; its actions can be looked at ([`Outcome`]), and applied to the pretended cluster, so that convergence
//! and idempotence are one line each:
//!
//! ```
//! # use pilothouse_sdk::prelude::*;
//! # #[derive(Deserialize, JsonSchema)]
//! # struct Greeting { text: String }
//! # impl Reconciler for Greeting {
//! #     const PRIMARY: Resource = Resource::namespaced("example.com", "v1", "Greeting", "greetings");
//! #     type Status = NoStatus;
//! #     fn controller() -> Controller { Controller::new(Crd::of::<Self>()).owns(CONFIG_MAP) }
//! #     fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
//! #         let mut map = CONFIG_MAP.object(pass.name());
//! #         map["data"] = json!({"text": pass.spec.text});
//! #         actions.apply(map);
//! #         Ok(())
//! #     }
//! # }
//! use pilothouse_sdk::testing::Cluster;
//!
//! let mut cluster = Cluster::<Greeting>::new("shop", "hello", json!({"text": "good day"}));
//! assert_eq!(cluster.pass(), ["create ConfigMap hello"]);
//! assert!(cluster.pass().is_empty(), "a second pass changes nothing");
//!
//! cluster.edit(|spec| spec["text"] = json!("good night"));
//! assert_eq!(cluster.pass(), ["ConfigMap hello: data.text"]);
//! ```
//!
//! What it does not pretend: defaults and refusals of the API server (set them with [`Cluster::child_mut`] and
//! [`Cluster::reject`]), other controllers, and list keys of server-side apply (lists of the same length are merged
//! by position, others are replaced).

mod explained;
mod merge;
mod outcome;
mod review;

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde_json::{Value, json};

use crate::action::{Action, LookUp};
use crate::bindings::pilothouse::operator::types as wit;
use crate::kinds::{Resource, SECRET, Scope};
use crate::log::native as lines;
use crate::manifest::Controller;
use crate::object::Object;
use crate::pass;
use crate::reconciler::Reconciler;
pub use explained::unexplained;
pub use outcome::Outcome;
pub use review::{Request, converted};

/// Rounds of look-ups in one pass, as in the host.
const LOOK_UPS_MAX: usize = 5;

/// Passes within which [`Cluster::settle`] expects rest. Real plugins need two or three.
const SETTLE_PASSES_MAX: usize = 20;

/// A pretended cluster around one primary that `R` reconciles.
#[derive(Debug, Clone)]
pub struct Cluster<R> {
    /// The plugin's configuration.
    pub config: Value,
    /// Time of the next pass.
    pub now: String,
    /// Randomness of the next pass.
    pub seed: u64,
    controller: Controller,
    primary: Value,
    children: BTreeMap<(Resource, String), Child>,
    answers: BTreeMap<String, Vec<Value>>,
    last: Vec<wit::Rejected>,
    events: Vec<crate::action::Event>,
    reconciler: PhantomData<R>,
}

/// A child: what was applied last, and what the API server shows.
#[derive(Debug, Clone)]
struct Child {
    applied: Value,
    live: Value,
}

impl<R: Reconciler> Cluster<R> {
    /// With a primary of this namespace, name and spec, and nothing else.
    ///
    /// # Panics
    /// If the reconciler's CRD cannot be generated.
    pub fn new(namespace: &str, name: &str, spec: Value) -> Self {
        let mut primary = R::PRIMARY.object(name);
        if R::PRIMARY.scope == Scope::Namespaced {
            primary["metadata"]["namespace"] = json!(namespace);
        }
        primary["spec"] = spec;
        Self::from_object(primary)
    }

    /// With this primary, for example of a sample file, and nothing else. What the API server would have added to its
    /// metadata is added.
    ///
    /// # Panics
    /// If it is not of the reconciler's kind, or the CRD cannot be generated.
    pub fn from_object(mut primary: Value) -> Self {
        assert!(R::PRIMARY.is_kind_of(&primary), "the object is no {}", R::PRIMARY.kind);
        let controller = R::controller();
        let name = primary["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        primary["metadata"]["uid"] = json!(uid(R::PRIMARY, &name));
        primary["metadata"]["generation"] = json!(1);
        primary["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
        if let Some(finalizer) = &controller.finalizer {
            primary["metadata"]["finalizers"] = json!([finalizer]);
        }
        Self {
            config: json!({}),
            now: "2025-01-01T00:00:00Z".to_owned(),
            seed: 0,
            controller,
            primary,
            children: BTreeMap::new(),
            answers: BTreeMap::new(),
            last: Vec::new(),
            events: Vec::new(),
            reconciler: PhantomData,
        }
    }

    /// The primary, with the status that passes have set.
    pub fn primary(&self) -> Object {
        Object::from(self.primary.clone())
    }

    /// Changes the primary's spec, as its user would.
    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.primary["spec"]);
        let generation = self.primary["metadata"]["generation"].as_i64().unwrap_or(0);
        self.primary["metadata"]["generation"] = json!(generation + 1);
    }

    /// Asks for the primary's deletion, as its user would.
    pub fn delete(&mut self) {
        self.primary["metadata"]["deletionTimestamp"] = json!(self.now);
    }

    /// Whether the primary is gone: deletion was asked for and no finalizer is left.
    pub fn is_gone(&self) -> bool {
        let metadata = &self.primary["metadata"];
        metadata.get("deletionTimestamp").is_some()
            && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
    }

    /// A child as the API server shows it.
    pub fn child(&self, kind: Resource, name: &str) -> Option<&Value> {
        self.children.get(&(kind, name.to_owned())).map(|child| &child.live)
    }

    /// A child, to change what others would: its status, a defaulted field, drift.
    ///
    /// # Panics
    /// If there is no such child.
    pub fn child_mut(&mut self, kind: Resource, name: &str) -> &mut Value {
        match self.children.get_mut(&(kind, name.to_owned())) {
            Some(child) => &mut child.live,
            None => panic!("there is no {} {name}", kind.kind),
        }
    }

    /// Adds or replaces a child that no pass has applied, for example a pod.
    ///
    /// # Panics
    /// If the manifest does not declare its kind.
    pub fn insert_child(&mut self, object: Value) {
        let kind = self.declared(&object).resource;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.children.insert((kind, name), Child { applied: json!({}), live: object });
    }

    /// Removes a child, as somebody's `kubectl delete` would.
    pub fn remove_child(&mut self, kind: Resource, name: &str) {
        self.children.remove(&(kind, name.to_owned()));
    }

    /// Answers a rule of the manifest, or look-ups of this id, with these objects.
    pub fn answer(&mut self, query: &str, objects: Vec<Value>) {
        self.answers.insert(query.to_owned(), objects);
    }

    /// Tells the next pass that an action of the previous one was refused.
    pub fn reject(&mut self, index: u32, kind: Resource, name: &str, reason: &str, message: &str) {
        self.last.push(wit::Rejected {
            index,
            target: Some(wit::Reference {
                kind: wit::Kind {
                    group: kind.group.to_owned(),
                    version: kind.version.to_owned(),
                    kind: kind.kind.to_owned(),
                },
                namespace: None,
                name: name.to_owned(),
                uid: None,
            }),
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
    }

    /// Events that applied passes have recorded.
    pub fn events(&self) -> &[crate::action::Event] {
        &self.events
    }

    /// One pass, with its look-ups. Changes nothing.
    ///
    /// # Panics
    /// If the outcome is one that the host would refuse: a kind that the manifest does not declare, another
    /// namespace, two statuses, a release without deletion, a look-up with a rule's name, or more than five rounds
    /// of look-ups.
    pub fn reconcile(&self) -> Outcome {
        let rules = self.controller.related.iter().map(|rule| rule.name.clone());
        let mut asked: Vec<String> = rules.filter(|name| self.answers.contains_key(name)).collect();
        for _ in 0..=LOOK_UPS_MAX {
            let outcome = self.round(&asked);
            let more: Vec<String> = outcome
                .actions
                .as_slice()
                .iter()
                .filter_map(|action| match action {
                    Action::LookUp(LookUp { id, .. }) => Some(id.clone()),
                    _ => None,
                })
                .collect();
            if more.is_empty() {
                self.admit(&outcome);
                return outcome;
            }
            for id in more {
                let is_rule = self.controller.related.iter().any(|rule| rule.name == id);
                assert!(!is_rule, "the look-up `{id}` bears the name of a rule");
                if !asked.contains(&id) {
                    asked.push(id);
                }
            }
        }
        panic!("more than {LOOK_UPS_MAX} rounds of look-ups");
    }

    fn round(&self, asked: &[String]) -> Outcome {
        let desired = wit::Desired {
            primary: self.primary.to_string(),
            deleting: self.primary["metadata"].get("deletionTimestamp").is_some(),
            config: self.config.to_string(),
            now: self.now.clone(),
            seed: self.seed,
        };
        let answer = |query: &String| wit::Answer {
            query: query.clone(),
            complete: true,
            objects: self.answers.get(query).into_iter().flatten().map(Value::to_string).collect(),
        };
        let observed = wit::Observed {
            children: self.children.values().map(|child| child.live.to_string()).collect(),
            related: asked.iter().map(answer).collect(),
            last: self.last.clone(),
        };
        lines::take();
        let decision = pass::run::<R>(desired, observed);
        Outcome { actions: decision.actions, failure: decision.failure, log: lines::take() }
    }

    /// Carries the actions out, and says what changed: one line for each object, with the paths of its fields.
    pub fn apply(&mut self, outcome: &Outcome) -> Vec<String> {
        self.last.clear();
        let mut changes = Vec::new();
        for action in outcome.actions.as_slice() {
            match action {
                Action::Apply(apply) => changes.extend(self.apply_child(&apply.object, apply.create_only)),
                Action::GenerateSecret(template) => {
                    changes.extend(self.apply_child(&merge::blanked_secret(template), Some(false)));
                }
                Action::Delete(delete) => {
                    if self.children.remove(&(delete.target.kind, delete.target.name.clone())).is_some() {
                        changes.push(format!("delete {} {}", delete.target.kind.kind, delete.target.name));
                    }
                }
                Action::PatchTarget(patch) => {
                    changes.push(format!("patch {} {}", patch.target.kind.kind, patch.target.name));
                }
                Action::SetStatus(status) => changes.extend(self.set_status(status.to_json())),
                Action::Event(event) => self.events.push(event.clone()),
                Action::Release => {
                    self.primary["metadata"]["finalizers"] = json!([]);
                    changes.push("release".to_owned());
                }
                Action::LookUp(_) | Action::RequeueAfter(_) | Action::Extension(_) => {}
            }
        }
        changes
    }

    /// One pass, carried out: what changed.
    pub fn pass(&mut self) -> Vec<String> {
        let outcome = self.reconcile();
        self.apply(&outcome)
    }

    /// Passes until one changes nothing, and gives that one's outcome.
    ///
    /// # Panics
    /// If that takes more than twenty passes.
    pub fn settle(&mut self) -> Outcome {
        let mut changes = Vec::new();
        for _ in 0..SETTLE_PASSES_MAX {
            let outcome = self.reconcile();
            changes = self.apply(&outcome);
            if changes.is_empty() {
                return outcome;
            }
        }
        panic!("no rest after {SETTLE_PASSES_MAX} passes; the last one changed {changes:?}");
    }

    fn apply_child(&mut self, object: &Value, create_only: Option<bool>) -> Option<String> {
        let declared = self.declared(object);
        let (kind, create_only) = (declared.resource, create_only.unwrap_or(declared.create_only));
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let line = format!("{} {name}", kind.kind);
        if let Some(child) = self.children.get_mut(&(kind, name.clone())) {
            if create_only {
                return None;
            }
            let mut paths = merge::differences(&child.live, object);
            paths.extend(merge::take_back(&mut child.live, &child.applied, object));
            merge::merge(&mut child.live, object);
            child.applied = object.clone();
            return (!paths.is_empty()).then(|| format!("{line}: {}", paths.join(", ")));
        }
        let mut live = object.clone();
        live["metadata"]["uid"] = json!(uid(kind, &name));
        if kind.scope == Scope::Namespaced && live["metadata"]["namespace"].is_null() {
            live["metadata"]["namespace"] = self.primary["metadata"]["namespace"].clone();
        }
        live["metadata"]["generation"] = json!(1);
        self.children.insert((kind, name), Child { applied: object.clone(), live });
        Some(format!("create {line}"))
    }

    /// As the host does: generation and transition times are its own business, and conditions that are not named stay.
    fn set_status(&mut self, mut status: Value) -> Option<String> {
        let old = self.primary["status"].take();
        status["observedGeneration"] = self.primary["metadata"]["generation"].clone();
        let mut conditions = old["conditions"].as_array().cloned().unwrap_or_default();
        for mut condition in status["conditions"].as_array().cloned().unwrap_or_default() {
            let known = conditions.iter().position(|known| known["type"] == condition["type"]);
            if condition["status"].is_null() {
                known.map(|at| conditions.remove(at));
                continue;
            }
            let same = known.map(|at| &conditions[at]).filter(|known| known["status"] == condition["status"]);
            condition["lastTransitionTime"] = match same {
                Some(known) => known["lastTransitionTime"].clone(),
                None => json!(self.now),
            };
            match known {
                Some(at) => conditions[at] = condition,
                None => conditions.push(condition),
            }
        }
        if !conditions.is_empty() {
            status["conditions"] = conditions.into();
        }
        let changed = old != status;
        self.primary["status"] = status;
        changed.then(|| "status".to_owned())
    }

    fn declared(&self, object: &Value) -> &crate::manifest::Child {
        let child = self.controller.children.iter().find(|child| child.resource.is_kind_of(object));
        match child {
            Some(child) => child,
            None => panic!("the manifest declares no child {} {}", object["apiVersion"], object["kind"]),
        }
    }

    fn admit(&self, outcome: &Outcome) {
        let mut statuses = 0;
        let mut children = std::collections::BTreeSet::new();
        let mut once = |kind: &Value, name: &Value| {
            assert!(children.insert(format!("{kind} {name}")), "{kind} {name} is applied or generated twice");
        };
        for action in outcome.actions.as_slice() {
            match action {
                Action::Apply(apply) => {
                    self.declared(&apply.object);
                    once(&apply.object["kind"], &apply.object["metadata"]["name"]);
                    let namespace = &apply.object["metadata"]["namespace"];
                    assert!(
                        namespace.is_null() || *namespace == self.primary["metadata"]["namespace"],
                        "{namespace} is another namespace than the primary's"
                    );
                }
                Action::GenerateSecret(secret) => {
                    self.declared(&SECRET.object(""));
                    once(&json!("Secret"), &json!(secret.name));
                }
                Action::Delete(delete) => self.permitted(delete.target.kind, "delete"),
                Action::PatchTarget(patch) => {
                    let verb = match patch.subresource {
                        None => "patch",
                        Some("status") => "patch-status",
                        Some(_) => "patch-scale",
                    };
                    self.permitted(patch.target.kind, verb);
                }
                Action::SetStatus(_) => statuses += 1,
                Action::Release => {
                    let deleting = self.primary["metadata"].get("deletionTimestamp").is_some();
                    assert!(deleting, "release without deletion");
                }
                Action::Event(_) | Action::LookUp(_) | Action::RequeueAfter(_) | Action::Extension(_) => {}
            }
        }
        assert!(statuses < 2, "more than one status in a pass");
    }

    fn permitted(&self, kind: Resource, verb: &str) {
        let child = verb == "delete" && self.controller.children.iter().any(|child| child.resource == kind);
        let target =
            || self.controller.targets.iter().any(|one| one.resource == kind && one.verbs.contains(&verb));
        assert!(child || target(), "the manifest does not permit to {verb} a {}", kind.kind);
    }
}

/// The same in each run, so that goldens can hold it.
fn uid(kind: Resource, name: &str) -> String {
    format!("uid-of-{}-{name}", kind.kind.to_ascii_lowercase())
}
