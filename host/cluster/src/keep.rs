//! Objects that the host keeps for itself, outside of any pass: definitions and webhook configurations. Each is brought
//! to what is wanted and otherwise left alone: an object that is as it should be is read once and not written.

use pilothouse_model::diff::{self, Need, Print};
use pilothouse_model::manifest::Resource;
use pilothouse_model::object::Object;
use pilothouse_model::plan::Propagation;
use serde_json::{Value, json};

use crate::write::{Conflicts, Endpoint, Mode, Writer};
use crate::write_error::{Fault, WriteError};

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is as it should be.
    AsItWas,
    /// It was brought there.
    Written,
    /// It is gone now.
    Removed,
    /// It is there and somebody else's.
    Foreign,
    /// It is not there, and only part of it is ours to say.
    Absent,
}

/// Brings an object without a namespace to what is wanted, by server-side apply under the writer's field manager, taking
/// fields over from whoever else set them. `partial`: what is wanted is not a whole object, so it is not created.
pub async fn apply(
    writer: &Writer,
    resource: &Resource,
    name: &str,
    wanted: &Value,
    partial: bool,
    ours: impl FnOnce(&Object) -> bool,
) -> Result<Kept, WriteError> {
    let at = Endpoint::new(&resource.kind(), &resource.plural, None, name);
    let mut wanted = std::borrow::Cow::Borrowed(wanted);
    match writer.get(&at).await? {
        Some(live) if !ours(&live) => return Ok(Kept::Foreign),
        Some(live) => {
            match diff::need(&wanted, Print::of(&wanted), &live, None) {
                Need::No(_) => return Ok(Kept::AsItWas),
                Need::Ask => {
                    let answer = writer.apply(&at, &wanted, Conflicts::Force, Mode::DryRun).await?;
                    if diff::unchanged(&answer, &live) {
                        return Ok(Kept::AsItWas);
                    }
                }
                Need::Write => {}
            }
            if partial {
                // Gone meanwhile, it must not be made of a part.
                wanted.to_mut()["metadata"]["uid"] = json!(live.meta().uid);
            }
        }
        None if partial => return Ok(Kept::Absent),
        None => {}
    }
    writer.apply(&at, &wanted, Conflicts::Force, Mode::Store).await?;
    Ok(Kept::Written)
}

/// Sees that there is no such object of ours.
pub async fn remove(
    writer: &Writer,
    resource: &Resource,
    name: &str,
    ours: impl FnOnce(&Object) -> bool,
) -> Result<Kept, WriteError> {
    let at = Endpoint::new(&resource.kind(), &resource.plural, None, name);
    match writer.get(&at).await {
        Ok(Some(live)) if ours(&live) => {
            writer.delete(&at, &live.meta().uid, Propagation::Background, None).await?;
            Ok(Kept::Removed)
        }
        // Somebody else's has nothing to do with us.
        Ok(_) => Ok(Kept::AsItWas),
        // Who was never allowed to make it has made none.
        Err(error) if error.fault == Fault::Forbidden => Ok(Kept::AsItWas),
        Err(error) => Err(error),
    }
}
