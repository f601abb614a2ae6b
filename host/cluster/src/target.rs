//! Deletes and patches: writes to one object that is there, of a child kind or of a target's.

use std::sync::Arc;

use pilothouse_model::kind::Reference;
use pilothouse_model::merge_patch;
use pilothouse_model::object::Object;
use pilothouse_model::plan::{Propagation, Subresource, Write};
use serde_json::Value;

use crate::apply::{Done, Run, WriteResult};
use crate::desired;
use crate::write::{Deleted, Endpoint};
use crate::write_error::{Fault, WriteError};

impl Run<'_> {
    /// Deletes the object with this UID and no other.
    pub(crate) async fn delete(
        &mut self,
        write: &Write,
        uid: &str,
        propagation: Propagation,
        grace_period_seconds: Option<u64>,
    ) -> Done {
        let at = Endpoint::of_write(write);
        let known = self.seen.get(&write.target).filter(|known| *known.meta().uid == *uid);
        if known.is_some_and(|known| known.meta().deleting && !sooner(&known, grace_period_seconds)) {
            // Asked for already, by an earlier pass: it goes when it may.
            return Ok(WriteResult::Deleted { uid: uid.to_owned(), gone: false });
        }
        let gone = match self.writer().delete(&at, uid, propagation, grace_period_seconds).await? {
            Deleted::Gone => {
                self.gone(&Reference { uid: Some(uid.to_owned()), ..write.target.clone() });
                true
            }
            Deleted::Going(object) => {
                self.written(*object);
                false
            }
        };
        Ok(WriteResult::Deleted { uid: uid.to_owned(), gone })
    }

    /// Patches an object that is not ours, if the patch would change anything.
    pub(crate) async fn patch_target(
        &mut self,
        write: &Write,
        patch: &Value,
        subresource: Option<Subresource>,
    ) -> Done {
        let at = Endpoint::of_write(write);
        let path = subresource.map(|subresource| match subresource {
            Subresource::Status => "status",
            Subresource::Scale => "scale",
        });
        let gone = || WriteError::here(Fault::NotFound, format!("{at} is not there"));
        // A scale is another object than the one that is watched.
        let scale = subresource == Some(Subresource::Scale);
        let known =
            self.seen.get(&write.target).filter(|known| !scale && desired::shows_all_of(known, patch));
        let live = if let Some(known) = known {
            known.to_value()
        } else {
            let text = self.writer().get_text(&at, path).await?.ok_or_else(gone)?;
            serde_json::from_slice(&text).unwrap_or_default()
        };
        let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        if write.target.uid.as_deref().is_some_and(|wanted| wanted != uid) {
            return Err(gone());
        }
        if !merge_patch::changes(Some(&live), patch) {
            return Ok(WriteResult::NoOp);
        }
        let response = self.writer().merge_patch(&at, path, &desired::with_uid(patch, uid)).await?;
        Ok(if scale { WriteResult::Written(Arc::new(response)) } else { self.written(response) })
    }
}

/// Whether an object that is being deleted was given more time than this.
fn sooner(going: &Object, grace_period_seconds: Option<u64>) -> bool {
    let given = going.field("metadata")["deletionGracePeriodSeconds"].as_u64();
    grace_period_seconds.zip(given).is_some_and(|(wanted, given)| wanted < given)
}
