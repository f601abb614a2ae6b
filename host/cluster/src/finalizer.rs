//! Puts the plugin's finalizer on a primary before its first child, and takes it off when the plugin releases it.
//! JSON patches that test the UID and the list that was seen: another controller's finalizer is never lost, and an
//! object that has taken the name since is never touched.
//!
//! The API server allows no new finalizer on an object that is being deleted, and its own garbage collection does
//! what a plugin that never got to see the object would have done: such an object is left alone.

use pilothouse_model::manifest::Resource;
use pilothouse_model::object::Object;
use serde_json::{Value, json};

use crate::write::{Endpoint, Writer};
use crate::write_error::{Fault, WriteError};

/// Attempts at one change: the second is made from a fresh look. A list that changes faster is the next pass's.
const ATTEMPTS_MAX: usize = 2;

/// Makes sure that the finalizer is there. The object as it is now if it had to be put there; none if it was there
/// or the object is being deleted. Dropping the future may leave it there or not; both are well.
pub async fn ensure(
    writer: &Writer,
    resource: &Resource,
    primary: &Object,
    finalizer: &str,
) -> Result<Option<Object>, WriteError> {
    change(writer, resource, primary, |object| {
        let present = &object.meta().finalizers;
        if object.meta().deleting || present.iter().any(|one| **one == *finalizer) {
            return None;
        }
        // A `test` of a list that is not there is written as one of null.
        Some(if present.is_empty() {
            json!([
                {"op": "test", "path": "/metadata/finalizers", "value": null},
                {"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}
            ])
        } else {
            json!([
                {"op": "test", "path": "/metadata/finalizers", "value": present},
                {"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}
            ])
        })
    })
    .await
}

/// Makes sure that the finalizer is not there. The object as it is now if it had to be taken off (the last one gone,
/// the API server answers with the object as it went); none if it was not there, or the object is gone.
pub async fn remove(
    writer: &Writer,
    resource: &Resource,
    primary: &Object,
    finalizer: &str,
) -> Result<Option<Object>, WriteError> {
    let removed = change(writer, resource, primary, |object| {
        let at = object.meta().finalizers.iter().position(|one| **one == *finalizer)?;
        let path = format!("/metadata/finalizers/{at}");
        Some(json!([
            {"op": "test", "path": path, "value": finalizer},
            {"op": "remove", "path": path}
        ]))
    })
    .await;
    match removed {
        Err(error) if error.fault == Fault::NotFound => Ok(None),
        done => done,
    }
}

async fn change(
    writer: &Writer,
    resource: &Resource,
    primary: &Object,
    operations: impl Fn(&Object) -> Option<Value>,
) -> Result<Option<Object>, WriteError> {
    let at = Endpoint::of_object(resource, primary);
    let uid = &*primary.meta().uid;
    let mut fresh = None;
    for attempt in 1.. {
        let Some(operations) = operations(fresh.as_ref().unwrap_or(primary)) else { return Ok(fresh) };
        let same_object = json!({"op": "test", "path": "/metadata/uid", "value": uid});
        let operations = [&[same_object][..], operations.as_array().map_or(&[], Vec::as_slice)].concat();
        match writer.json_patch(&at, &Value::Array(operations)).await {
            Ok(object) => return Ok(Some(object)),
            Err(error) if error.fault == Fault::Precondition && attempt < ATTEMPTS_MAX => {
                let found = writer.get(&at).await?.filter(|found| *found.meta().uid == *uid);
                let gone = || WriteError::here(Fault::NotFound, format!("{at} is not there any more"));
                fresh = Some(found.ok_or_else(gone)?);
            }
            Err(error) => return Err(error),
        }
    }
    unreachable!("the loop ends by returning")
}
