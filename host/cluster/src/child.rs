//! One child on its way to what the plan wants: looked for, compared, created, changed, made anew or left alone.

use std::sync::Arc;

use pilothouse_model::diff::{self, Memory, Need};
use pilothouse_model::fields::FieldSet;
use pilothouse_model::object::Object;
use pilothouse_model::update::Method;
use serde_json::{Value, json};

use crate::apply::{Done, Run, Wanted, WriteResult, going};
use crate::desired;
use crate::write::{Answer, Conflicts, Mode};
use crate::write_error::{Fault, WriteError};

/// A version that no object ever has: that of an empty etcd. An apply of it creates, as nothing is there to compare it
/// with, or is refused.
const VERSION_OF_NONE: &str = "1";

/// How a child compares with what is wanted.
pub(crate) enum Comparison {
    /// Nothing has to be done; and what to remember.
    Equal(Memory),
    /// The object is as wanted, but not all of that is ours: an apply makes it so.
    Unowned,
    /// Something has to be done.
    Differs,
    /// The API server says that an apply would change what cannot change, or repeat an item of a list.
    Refused(WriteError),
}

/// How certain a difference has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// A write without effect costs a request.
    Likely,
    /// What is done about it is dear: the API server is asked.
    Sure,
}

impl Run<'_> {
    /// Brings a child to what is wanted.
    pub(crate) async fn apply_child(&mut self, wanted: &Wanted<'_>) -> Done {
        match self.find(wanted.write, &wanted.at).await? {
            Some(live) if wanted.method != Method::InPlace && self.is_stray(&live) => {
                self.adopt(wanted, &live).await
            }
            Some(live) => self.update(wanted, live).await,
            None => self.create(wanted).await,
        }
    }

    /// First apply to a name that nothing bore a moment ago. Of an object that is there by now it has the wrong version,
    /// and changes nothing.
    pub(crate) async fn create(&mut self, wanted: &Wanted<'_>) -> Done {
        self.refuse_in_terminating_namespace(wanted.write)?;
        let mut body = wanted.object.clone();
        body["metadata"]["resourceVersion"] = json!(VERSION_OF_NONE);
        let response = self.writer().apply(&wanted.at, &body, Conflicts::Report, Mode::Store).await?;
        Ok(self.applied(wanted, response))
    }

    async fn update(&mut self, wanted: &Wanted<'_>, live: Arc<Object>) -> Done {
        if live.meta().deleting && !gives_up_a_finalizer(wanted.object, &live) {
            return Err(going(&wanted.at));
        }
        let certainty = if wanted.method.recreates() { Certainty::Sure } else { Certainty::Likely };
        let (live, comparison) = self.compare(wanted, live, certainty).await?;
        match comparison {
            Comparison::Equal(memory) => {
                self.applier.remember(&live, memory);
                return Ok(self.unchanged(live));
            }
            Comparison::Differs | Comparison::Refused(_) if wanted.method.recreates() => {
                return self.replace(wanted, &live).await;
            }
            Comparison::Unowned | Comparison::Differs => {}
            Comparison::Refused(error) => return self.answer_refusal(wanted, &live, error).await,
        }
        let mut conflicts = wanted.conflicts;
        if live.own_fields().is_none() {
            if live.has_foreign_managers() {
                self.take_over(&wanted.at, &live).await?;
            }
            if !self.is_controlled(&live) {
                // Somebody else made it. What differs there may be meant so.
                conflicts = Conflicts::Report;
            }
        }
        let body = desired::with_uid(wanted.object, &live.meta().uid);
        match self.writer().apply(&wanted.at, &body, conflicts, Mode::Store).await {
            Ok(response) => Ok(self.applied(wanted, response)),
            Err(error) => self.answer_refusal(wanted, &live, error).await,
        }
    }

    /// Whether anything has to be done about `live`, and the whole of it if the snapshot showed a part.
    pub(crate) async fn compare(
        &self,
        wanted: &Wanted<'_>,
        mut live: Arc<Object>,
        certainty: Certainty,
    ) -> Result<(Arc<Object>, Comparison), WriteError> {
        let memory = self.applier.recall(&live);
        let mut need = diff::need(wanted.object, wanted.print(), &live, memory.as_ref());
        if need == Need::Ask && live.is_partial() {
            // The watch does not show all of it: look at the whole object before asking what would become of it.
            live = self.look_again(&wanted.at, &live).await?;
            need = diff::need(wanted.object, wanted.print(), &live, None);
        }
        match need {
            Need::No(memory) => return Ok((live, Comparison::Equal(memory))),
            Need::Write if certainty == Certainty::Likely => return Ok((live, Comparison::Differs)),
            Need::Write if live.is_partial() => live = self.look_again(&wanted.at, &live).await?,
            Need::Write | Need::Ask => {}
        }
        let body = desired::with_uid(wanted.object, &live.meta().uid);
        let comparison = match self.writer().apply(&wanted.at, &body, wanted.conflicts, Mode::DryRun).await {
            Ok(answer) if diff::unchanged(&answer, &live) => {
                Comparison::Equal(Memory::after(wanted.print(), &live))
            }
            Ok(answer) if diff::same_content(&answer, &live) => Comparison::Unowned,
            Ok(_) => Comparison::Differs,
            Err(error) if error.fault == Fault::NoDryRun => Comparison::Differs,
            Err(error) if is_refusal(&error) => Comparison::Refused(error),
            Err(error) => return Err(error),
        };
        Ok((live, comparison))
    }

    async fn answer_refusal(&mut self, wanted: &Wanted<'_>, live: &Object, error: WriteError) -> Done {
        match error.fault {
            Fault::Immutable => self.recreate(wanted, live, error).await,
            Fault::Duplicate => self.replace_displaced(wanted, live, error).await,
            _ => Err(error),
        }
    }

    /// A child that is created and never touched again. The POST finds out whether the name is taken.
    pub(crate) async fn create_once(&mut self, wanted: &Wanted<'_>) -> Done {
        let at = &wanted.at;
        let known = self.seen.get(&wanted.write.target).filter(|known| self.is_controlled(known));
        if let Some(known) = known {
            return if known.meta().deleting { Err(going(at)) } else { Ok(WriteResult::NoOp) };
        }
        self.refuse_in_terminating_namespace(wanted.write)?;
        let answer = if wanted.metadata_only { Answer::Metadata } else { Answer::Whole };
        match self.writer().create(at, wanted.object, Mode::Store, answer).await {
            Ok(response) => Ok(self.written(response)),
            Err(error) if error.fault == Fault::AlreadyExists => match self.find(wanted.write, at).await? {
                Some(live) if live.meta().deleting => Err(going(at)),
                Some(live) if self.is_stray(&live) => self.adopt(wanted, &live).await,
                Some(live) => Ok(self.unchanged(live)),
                None => Err(WriteError::here(Fault::Stale, format!("{at} went while it was looked at"))),
            },
            Err(error) => Err(error),
        }
    }
}

fn is_refusal(error: &WriteError) -> bool {
    matches!(error.fault, Fault::Immutable | Fault::Duplicate)
}

/// A child that is being deleted is left alone, but for the finalizers that the plugin itself put there and now
/// leaves out: it would never go.
fn gives_up_a_finalizer(desired: &Value, live: &Object) -> bool {
    let own = live.own_fields().and_then(|own| FieldSet::parse(own));
    let wanted = desired.pointer("/metadata/finalizers").and_then(Value::as_array).map_or(0, Vec::len);
    own.is_some_and(|own| own.has(&["metadata", "finalizers"])) && wanted < live.meta().finalizers.len()
}
