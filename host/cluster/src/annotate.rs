//! Annotations that the host writes on a primary: what it would do, in plan mode.

use pilothouse_model::manifest::Resource;
use pilothouse_model::object::Object;
use serde_json::{Map, Value, json};

use crate::write::{Endpoint, Writer};
use crate::write_error::WriteError;

/// Sets these annotations, or takes them off where there is no value. Only on the very version of the object that was
/// seen: what somebody else said meanwhile is not written over. Dropping the future may leave it done or not.
pub async fn annotate(
    writer: &Writer,
    resource: &Resource,
    primary: &Object,
    annotations: &[(&str, Option<&str>)],
) -> Result<Object, WriteError> {
    let annotations: Map<String, Value> =
        annotations.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let meta = primary.meta();
    let patch = json!({"metadata": {
        "uid": &*meta.uid, "resourceVersion": meta.resource_version.to_string(), "annotations": annotations
    }});
    writer.merge_patch(&Endpoint::of_object(resource, primary), None, &patch).await
}
