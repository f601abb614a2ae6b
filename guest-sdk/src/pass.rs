//! [`Pass`]: everything that one call of `reconcile` or `finalize` may know.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::action::{Actions, LookUp, Reference, SetStatus};
use crate::bindings::pilothouse::operator::types::{Desired, Observed};
use crate::condition::Condition;
use crate::kinds::{NAMESPACE, Resource};
use crate::names;
use crate::object::Object;
use crate::problems::Problems;
use crate::reconciler::{Failure, Reconciler};
use crate::selector::LabelSelector;
use crate::time::Time;
use crate::views::View;

/// One pass over one object: what its user wants, what the cluster has, and the pass's only clock and randomness.
///
/// `S` is what is known of the spec: all of it while the object is reconciled, and perhaps nothing once it is being
/// deleted ([`LastPass`]). What a reconciler does in both is a function over `&Pass<Self, S>`.
#[derive(Debug)]
pub struct Pass<R, S = R> {
    /// `spec` of the object.
    pub spec: S,
    /// The object itself.
    pub primary: Object,
    /// Time of the pass, RFC 3339 in UTC.
    pub now: String,
    /// Fresh in each pass, so never for names of children.
    pub seed: u64,
    config: Value,
    children: Vec<Object>,
    related: Vec<Answer>,
    rejected: Vec<Rejected>,
    reconciler: PhantomData<R>,
}

/// A pass over an object that is being deleted. Its spec may be one that the type cannot read: stored before the type
/// was as it is, or under somebody else's CRD. It must be able to go all the same.
pub type LastPass<R> = Pass<R, Result<R, Failure>>;

impl<R: Reconciler> LastPass<R> {
    /// The spec, for what cannot be undone without it. If it cannot be read, the failure to return: the object stays until
    /// its user has corrected the field, or has given the clean-up up by taking the finalizer off; the text names both.
    ///
    /// What the first passes write into the status or onto children is there whatever the user has made of the spec since:
    /// prefer that.
    pub fn spec(&self) -> Result<&R, Failure> {
        self.spec.as_ref().map_err(|failure| match failure {
            Failure::Invalid(problem) => {
                let finalizer = R::controller().finalizer.unwrap_or_default();
                let way_out =
                    "; the clean-up before the object goes needs this: correct it, or take the finalizer ";
                Failure::Invalid([problem, way_out, &finalizer, " off, and nothing is cleaned up"].concat())
            }
            Failure::Retry(_) => failure.clone(),
        })
    }
}

/// The objects found for one question.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Name of the manifest's rule, or id of the [`LookUp`].
    pub query: String,
    /// False while the host cannot know all objects yet, or cut the list.
    pub complete: bool,
    /// The objects.
    pub objects: Vec<Object>,
}

/// One action of the previous pass that did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Position among that pass's actions.
    pub index: usize,
    /// Kind and name of the object that it was for, if it was for one.
    pub target: Option<(String, String)>,
    /// One word: `Conflict`, `Immutable`, `Invalid`, `Forbidden`, `NotOwned`, `Terminating`, `Gone`, `Unavailable`,
    /// `TooLarge`.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl<R: Reconciler, S> Pass<R, S> {
    /// `metadata.name` of the object.
    pub fn name(&self) -> &str {
        self.primary.name()
    }

    /// `metadata.namespace` of the object.
    pub fn namespace(&self) -> &str {
        self.primary.namespace()
    }

    /// The plugin's configuration, as the administrator gave it. A wrong one is no fault of the object's user.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read("config", &self.config).map_err(Failure::Retry)
    }

    /// Time of the pass, to count with.
    pub fn time(&self) -> Result<Time, Failure> {
        Time::parse(&self.now).ok_or_else(|| Failure::Retry(["desired.now is no time: ", &self.now].concat()))
    }

    /// When the object was created; the time of the pass if it does not say.
    pub fn created(&self) -> Result<Time, Failure> {
        Time::parse(self.primary.text("/metadata/creationTimestamp")).map_or_else(|| self.time(), Ok)
    }

    /// The status that the object has, by earlier passes; the default if it has none, or one of another form.
    pub fn status(&self) -> R::Status
    where
        R::Status: DeserializeOwned + Default,
    {
        let status = self.primary.get("status").map(R::Status::deserialize);
        status.and_then(Result::ok).unwrap_or_default()
    }

    /// The child of this kind and name, if it exists.
    pub fn child(&self, kind: Resource, name: &str) -> Option<&Object> {
        self.children.iter().find(|child| child.name() == name && child.is_a(kind))
    }

    /// The child of this name as a [`View`], if it exists.
    pub fn child_as<'a, V: View<'a>>(&'a self, name: &str) -> Option<V> {
        self.child(V::KIND, name).map(V::of)
    }

    /// All children of a kind, by namespace and name.
    pub fn children(&self, kind: Resource) -> impl Iterator<Item = &Object> {
        self.children.iter().filter(move |child| child.is_a(kind))
    }

    /// The children of a kind that are called by the primary's name and a number, `web-0`, by that number.
    pub fn numbered_children(&self, kind: Resource) -> BTreeMap<usize, &Object> {
        let number = |child: &Object| names::number_after(self.name(), child.name());
        self.children(kind).filter_map(|child| Some((number(child)?, child))).collect()
    }

    /// All children of a kind as [`View`]s.
    pub fn children_as<'a, V: View<'a>>(&'a self) -> impl Iterator<Item = V> {
        self.children(V::KIND).map(V::of)
    }

    /// The answer to a rule of the manifest or to a [`LookUp`]; none if it was not asked.
    pub fn related(&self, query: &str) -> Option<&Answer> {
        self.related.iter().find(|answer| answer.query == query)
    }

    /// Whether the answer to a query has this very object, and not another of its name.
    pub fn is_among(&self, query: &str, object: &Object) -> bool {
        self.related(query).is_some_and(|answer| answer.objects.iter().any(|one| one.uid() == object.uid()))
    }

    /// Whether the previous pass asked for something of the object of this kind and name that did not happen.
    pub fn was_rejected(&self, kind: Resource, name: &str) -> bool {
        let mut targets = self.rejected.iter().filter_map(|rejected| rejected.target.as_ref());
        targets.any(|(target_kind, target)| target == name && target_kind == kind.kind)
    }

    /// The answer to a question; if it was not asked yet, asks it. A pass that gets none returns, and is called again
    /// with the answer.
    pub fn ask(&self, question: LookUp, actions: &mut Actions) -> Option<&Answer> {
        let answer = self.related(&question.id);
        if answer.is_none() {
            actions.push(question);
        }
        answer
    }

    /// All objects of a kind in the namespaces that a selector selects, at most 16 as each is a question, or in the
    /// primary's own without one; none until they were asked for, as with [`Self::ask`]. The manifest must have the kind
    /// and Namespace among the related ones. Other namespaces take a grant, without which the host refuses the question.
    pub fn ask_in_namespaces(
        &self,
        kind: Resource,
        selector: Option<&LabelSelector>,
        actions: &mut Actions,
    ) -> Option<Vec<&Object>> {
        let in_one = |namespace: &str, actions: &mut Actions| {
            let id = [kind.plural, " in ", namespace].concat();
            self.ask(LookUp::all(&id, kind).namespace(namespace).limit(LookUp::LIMIT_MAX), actions)
        };
        let Some(selector) = selector else {
            return Some(in_one(self.namespace(), actions)?.objects.iter().collect());
        };
        let question = LookUp::all("namespaces selected", NAMESPACE).selector(&selector.to_string());
        let namespaces = self.ask(question, actions)?.objects.iter();
        // All are asked for before the first that is missing ends it.
        let answers: Vec<_> = namespaces.map(|namespace| in_one(namespace.name(), actions)).collect();
        let answers: Option<Vec<_>> = answers.into_iter().collect();
        Some(answers?.into_iter().flat_map(|answer| &answer.objects).collect())
    }

    /// Actions of the previous pass that did not happen.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// A condition of the object, as it is now.
    pub fn condition(&self, name: &str) -> Option<Condition> {
        self.primary.condition(name)
    }

    /// The status that the object shall have; push it, with its conditions.
    pub fn set_status(&self, fields: &R::Status) -> SetStatus {
        let fields = serde_json::to_value(fields).unwrap_or_default();
        SetStatus { fields, conditions: Vec::new(), removed: Vec::new() }
    }

    /// Says in the status what is wrong with the object, and gives the failure to return.
    pub fn refuse(&self, problems: Problems, status: &R::Status, actions: &mut Actions) -> Failure {
        actions.push(self.set_status(status).condition(problems.condition()));
        problems.into()
    }

    /// A reference to the object itself.
    pub fn reference(&self) -> Reference {
        Reference::to(R::PRIMARY, &self.primary)
    }
}

/// What a pass decided.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decision {
    pub(crate) actions: Actions,
    pub(crate) failure: Option<Failure>,
}

/// Runs one pass.
pub(crate) fn run<R: Reconciler>(desired: Desired, observed: Observed) -> Decision {
    let deleting = desired.deleting;
    let mut actions = Actions::default();
    let result = begin::<R>(desired, observed).and_then(|pass| {
        if deleting {
            ended(pass, |pass| R::finalize(pass, &mut actions))
        } else {
            ended(pass.readable()?, |pass| R::reconcile(pass, &mut actions))
        }
    });
    Decision { actions, failure: result.err() }
}

fn ended<R, S>(
    pass: Pass<R, S>,
    run: impl FnOnce(&Pass<R, S>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let result = run(&pass);
    // The instance ends with the call: to give memory back piece by piece would be a tenth of the pass.
    if cfg!(target_arch = "wasm32") {
        std::mem::forget(pass);
    }
    result
}

impl<R: Reconciler> LastPass<R> {
    fn readable(self) -> Result<Pass<R>, Failure> {
        let Self { spec, primary, now, seed, config, children, related, rejected, reconciler } = self;
        Ok(Pass { spec: spec?, primary, now, seed, config, children, related, rejected, reconciler })
    }
}

fn begin<R: Reconciler>(desired: Desired, observed: Observed) -> Result<LastPass<R>, Failure> {
    let primary = object(desired.primary, "desired.primary")?;
    let empty = Value::Object(serde_json::Map::new());
    let spec = read("spec", primary.get("spec").unwrap_or(&empty)).map_err(Failure::Invalid);
    let mut related = Vec::with_capacity(observed.related.len());
    for answer in observed.related {
        let objects = objects(answer.objects)?;
        related.push(Answer { query: answer.query, complete: answer.complete, objects });
    }
    let rejected = observed.last.into_iter().map(|last| Rejected {
        index: last.index as usize,
        target: last.target.map(|target| (target.kind.kind, target.name)),
        reason: last.reason,
        message: last.message,
    });
    Ok(Pass {
        spec,
        primary,
        now: desired.now,
        seed: desired.seed,
        config: serde_json::from_str(&desired.config).map_err(|error| not_json("desired.config", &error))?,
        children: objects(observed.children)?,
        related,
        rejected: rejected.collect(),
        reconciler: PhantomData,
    })
}

fn objects(texts: Vec<String>) -> Result<Vec<Object>, Failure> {
    texts.into_iter().map(|text| object(text, "observed")).collect()
}

/// The host sends JSON; if it does not, the next pass may be better.
fn object(text: String, what: &str) -> Result<Object, Failure> {
    Object::parse(text).map_err(|error| not_json(what, &error))
}

fn not_json(what: &str, error: &serde_json::Error) -> Failure {
    Failure::Retry([what, " is not JSON: ", &error.to_string()].concat())
}

/// Reads a typed value. An error names the path, beginning with `field`.
pub(crate) fn read<T: DeserializeOwned>(field: &str, value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let below = error.path().to_string();
        let dot = if below == "." { "" } else { "." };
        let below = below.trim_start_matches('.');
        [field, dot, below, ": ", &error.inner().to_string()].concat()
    })
}
