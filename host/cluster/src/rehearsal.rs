//! Writes that are not made: a [`Writer`] that rehearses sends each write as a dry run and keeps a record of what it
//! would have changed. Whoever writes through it takes the very same decisions as it would in earnest, so that a plan
//! shows what would happen and not what somebody thinks would.
//!
//! - Admission, schema and rights of the API server have their say in the dry run.
//! - What a write would change is the difference between the object before it and the dry run's answer.
//! - An object that was deleted in the rehearsal is gone for the rest of it; what is then created under its name is
//!   not sent, as the API server still has the old one.
//! - A webhook that does not take dry runs makes the API server refuse them; then the answer is made here.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pilothouse_model::kind::Reference;
use pilothouse_model::merge_patch;
use pilothouse_model::pending::{self, Pending};
use serde_json::{Value, json};

use crate::write::{Call, Mode, Verb, Writer};
use crate::write_error::{Fault, WriteError};

/// What the API server answers to a deletion that left nothing.
const DELETED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;

/// The record of one rehearsal.
#[derive(Debug)]
pub struct Rehearsal {
    /// Namespace of the primary.
    home: Option<String>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    pending: Vec<Pending>,
    gone: HashSet<Reference>,
}

impl Rehearsal {
    /// An empty record. `home` is the namespace of the primary, which the record does not say again.
    pub fn new(home: Option<&str>) -> Self {
        Self { home: home.map(str::to_owned), book: Mutex::default() }
    }

    /// The writes that would have been made, in their order.
    pub fn pending(&self) -> Vec<Pending> {
        self.book().pending.clone()
    }

    /// Sends what reads, rehearses what writes.
    pub(crate) async fn play(&self, writer: &Writer, call: Call<'_>) -> Result<Vec<u8>, WriteError> {
        let target = call.target();
        let gone = self.book().gone.contains(&target);
        if gone && !matches!(call.verb, Verb::Create | Verb::Apply) {
            let message = format!("{} was deleted earlier in this plan", call.at);
            return Err(WriteError::here(Fault::NotFound, message));
        }
        if call.verb == Verb::Get || call.mode == Mode::DryRun {
            return writer.send_uncounted(call).await;
        }
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        if gone {
            self.note(pending::Verb::Create, &target, &call, &Value::Null, &body);
            return Ok(call.body);
        }
        let before = self.before(writer, &call).await?;
        let uid = before.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        let live = Reference { uid, ..target.clone() };
        if call.verb == Verb::Delete {
            // The API server takes the options of a deletion from its body alone, if there is one.
            let mut options = body;
            options["dryRun"] = json!(["All"]);
            writer.send_uncounted(call.rehearsed(options.to_string().into_bytes())).await?;
            self.note(pending::Verb::Delete, &live, &call, &before, &Value::Null);
            self.book().gone.insert(target);
            return Ok(DELETED.as_bytes().to_vec());
        }
        let answer = match writer.send_uncounted(call.rehearsed(call.body.clone())).await {
            Ok(answer) => answer,
            Err(error) if error.fault == Fault::NoDryRun && call.verb != Verb::JsonPatch => {
                merge_patch::apply(&before, &body).to_string().into_bytes()
            }
            Err(error) => return Err(error),
        };
        if before.is_null() {
            // What the API server makes of it (its UID, its times) differs from look to look.
            self.note(pending::Verb::Create, &live, &call, &before, &body);
        } else {
            let after = serde_json::from_slice(&answer).unwrap_or_default();
            self.note(pending::Verb::Update, &live, &call, &before, &after);
        }
        Ok(answer)
    }

    /// The object as it is; null if there is none.
    async fn before(&self, writer: &Writer, call: &Call<'_>) -> Result<Value, WriteError> {
        match writer.send_uncounted(call.look()).await {
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.fault == Fault::NotFound => Ok(Value::Null),
            Err(error) => Err(error),
        }
    }

    fn note(&self, verb: pending::Verb, target: &Reference, call: &Call<'_>, before: &Value, after: &Value) {
        let pending = Pending::new(verb, target, call.subresource, self.home.as_deref(), before, after);
        self.book().pending.push(pending);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
