//! A changed field that may not change: refuse it, or make the object anew, as the plan says. And children whose update
//! strategy is to be made anew, whatever changed.
//!
//! Making anew is a deletion of exactly the object that was seen, and a creation by this pass or, while the old object
//! is still going, by the pass that its disappearance wakes. It is safe to crash between the two: the next pass finds
//! no object and creates it. Before the deletion the API server is asked, in a dry run, whether it would take the new
//! object at all and whether it would differ from the old one: what cannot be created again is not deleted, and a
//! webhook that puts the old value back does not make it go round for ever.

use pilothouse_model::object::Object;
use pilothouse_model::plan::{OnImmutable, Propagation};
use serde_json::{Map, Value, json};

use crate::apply::{Done, Run, Wanted, WriteResult};
use crate::write::{Answer, Mode};
use crate::write_error::{Fault, WriteError};

/// Bytes of the name that a rehearsal keeps: with five random characters, label values and Service names fit.
const REHEARSAL_NAME_BYTES: usize = 40;

impl Run<'_> {
    /// Answers `refused`, the API server's word that an apply to `live` would change an immutable field.
    pub(crate) async fn recreate(&mut self, wanted: &Wanted<'_>, live: &Object, refused: WriteError) -> Done {
        let propagation = match wanted.on_immutable {
            OnImmutable::Refuse => return Err(refused),
            OnImmutable::RecreateOrphan => Propagation::Orphan,
            OnImmutable::Recreate => Propagation::Background,
        };
        let at = &wanted.at;
        if live.meta().deleting {
            let message = format!("{at} is being deleted, and is created again when it is gone");
            return Err(WriteError::here(Fault::ObjectTerminating, message));
        }
        if self.was_last_applied(live, wanted.print()) {
            let message = format!("{at} was made from this very configuration: {}", refused.message);
            return Err(WriteError { message, ..refused });
        }
        let rehearsed = self.rehearse(wanted, live).await?;
        if rehearsed.is_some_and(|rehearsed| content(&rehearsed) == content(live)) {
            let message = format!("created again it would be the same as it is: {}", refused.message);
            return Err(WriteError { message, ..refused });
        }
        self.make_anew(wanted, live, propagation, &refused.message).await
    }

    /// Makes `live` anew because its update strategy is to, whatever differs.
    pub(crate) async fn replace(&mut self, wanted: &Wanted<'_>, live: &Object) -> Done {
        self.rehearse(wanted, live).await?;
        self.make_anew(wanted, live, Propagation::Background, "its update strategy").await
    }

    async fn make_anew(
        &mut self,
        wanted: &Wanted<'_>,
        live: &Object,
        propagation: Propagation,
        cause: &str,
    ) -> Done {
        let at = &wanted.at;
        tracing::info!(object = %at, cause, "deleting, to create it again");
        let uid = live.meta().uid.to_string();
        let deleted = self.delete(wanted.write, &uid, propagation, None).await?;
        if matches!(deleted, WriteResult::Deleted { gone: true, .. }) {
            // Somebody else may have been quicker to take the name.
            return match self.find(wanted.write, at).await? {
                None => self.create(wanted).await,
                Some(_) => Err(WriteError::here(Fault::Stale, format!("{at} was created by another"))),
            };
        }
        let message = format!("{at} is deleted, and created again when it is gone: {cause}");
        Err(WriteError::here(Fault::ObjectTerminating, message))
    }

    /// Creates the object under another name, in a dry run, and returns what it would be, if that can be told.
    async fn rehearse(&self, wanted: &Wanted<'_>, live: &Object) -> Result<Option<Object>, WriteError> {
        let mut object = wanted.object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("name");
            let name = pilothouse_model::plan::clip(&live.meta().name, REHEARSAL_NAME_BYTES);
            metadata
                .insert("generateName".to_owned(), json!(format!("{}-", name.trim_end_matches(['-', '.']))));
        }
        match self.writer().create(&wanted.at, &object, Mode::DryRun, Answer::Whole).await {
            Ok(answer) => Ok(Some(answer)),
            // Nobody can tell without trying, and a quota counts the old object as well.
            Err(error) if error.fault == Fault::NoDryRun || error.message.contains("exceeded quota") => {
                Ok(None)
            }
            Err(error) => {
                let message =
                    format!("kept as it is, since it could not be created again: {}", error.message);
                Err(WriteError { message, ..error })
            }
        }
    }
}

/// What the author decides of an object.
fn content(object: &Object) -> Map<String, Value> {
    let Value::Object(mut fields) = object.to_value() else { return Map::new() };
    fields.remove("metadata");
    fields.remove("status");
    fields
}
