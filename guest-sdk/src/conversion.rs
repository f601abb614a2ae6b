//! [`Conversion`]: between the versions of a kind, when its CustomResourceDefinition serves several.
//!
//! The API server stores objects in one version and asks for the others. Users read an object in one version and write
//! it in another, so nothing may be lost on the way there and back: what the other version cannot say goes into an
//! annotation ([`keep`], [`take`]).

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::kinds::Resource;
use crate::pass::read;

/// Implemented for a kind with several versions, and named in [`export!`](crate::export):
/// `export!(Web; conversion: Web)`. Give the definition its other versions with
/// [`Crd::version`](crate::Crd::version).
pub trait Conversion: 'static {
    /// The kind, in any of its versions.
    const CONVERTED: Resource;

    /// Brings an object from one version (`v1alpha1`) to another (`v1`). Of its metadata only labels and annotations may
    /// change; `apiVersion` is set already. [`respec`] does most of it.
    fn convert(object: &mut Value, from: &str, to: &str) -> Result<(), String>;
}

/// Reads the object's spec as one type and puts what becomes of it in its place.
pub fn respec<A: DeserializeOwned, B: Serialize>(
    object: &mut Value,
    change: impl FnOnce(A) -> B,
) -> Result<(), String> {
    let empty = Value::Object(Map::new());
    let before = read("spec", object.get("spec").unwrap_or(&empty))?;
    object["spec"] = serde_json::to_value(change(before)).map_err(|error| error.to_string())?;
    Ok(())
}

/// Keeps in an annotation what the version of the object cannot say; null takes the annotation away.
pub fn keep(object: &mut Value, annotation: &str, value: &Value) {
    if value.is_null() {
        drop(take(object, annotation));
        return;
    }
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = Value::Object(Map::new());
    }
    object["metadata"]["annotations"][annotation] = value.to_string().into();
}

/// Takes out of an annotation what [`keep`] put there; null if there is nothing, or nothing that can be read.
pub fn take(object: &mut Value, annotation: &str) -> Value {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Value::Null;
    };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return Value::Null;
    };
    let kept = annotations.remove(annotation);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    kept.as_ref().and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Brings one object to another version. `to` is what `apiVersion` shall be.
pub(crate) fn convert<C: Conversion>(mut object: Value, to: &str) -> Result<Value, String> {
    let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    if from == to {
        return Ok(object);
    }
    let version = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
    object["apiVersion"] = to.into();
    C::convert(&mut object, &version(&from), &version(to))?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_is_taken_and_leaves_nothing_behind() {
        let plain = json!({"metadata": {"name": "a"}});
        let mut object = plain.clone();
        keep(&mut object, "e/x", &json!({"a": 1}));
        assert_eq!(object["metadata"]["annotations"]["e/x"], r#"{"a":1}"#);
        assert_eq!(take(&mut object, "e/x"), json!({"a": 1}));
        assert_eq!((take(&mut object, "e/x"), &object), (Value::Null, &plain));
        keep(&mut object, "e/x", &Value::Null);
        assert_eq!(object, plain);
        object["metadata"]["annotations"] = json!({"e/x": "{", "e/y": "1"});
        assert_eq!(take(&mut object, "e/x"), Value::Null, "somebody edited it");
        assert_eq!(object["metadata"]["annotations"], json!({"e/y": "1"}));
    }
}
