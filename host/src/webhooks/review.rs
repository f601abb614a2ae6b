//! AdmissionReview and ConversionReview as the API server writes and reads them, in version `v1`. Of what it sends only
//! what is used is read, and nothing is refused for being there besides.

use pilothouse_model::object::blank_secret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::service::Refusal;

/// A review of either kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<T> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<T>,
}

/// One request to the API server.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionBody {
    pub(super) uid: String,
    pub(super) kind: GroupVersionKind,
    pub(super) resource: GroupVersionResource,
    #[serde(default)]
    pub(super) sub_resource: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) operation: String,
    #[serde(default)]
    pub(super) user_info: UserInfo,
    #[serde(default)]
    pub(super) object: Value,
    #[serde(default)]
    pub(super) old_object: Value,
    #[serde(default)]
    pub(super) dry_run: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct GroupVersionKind {
    #[serde(default)]
    pub(super) group: String,
    #[serde(default)]
    pub(super) kind: String,
}

#[derive(Deserialize)]
pub(super) struct GroupVersionResource {
    #[serde(default)]
    pub(super) group: String,
    pub(super) resource: String,
}

#[derive(Default, Deserialize)]
pub(super) struct UserInfo {
    #[serde(default)]
    pub(super) username: String,
    #[serde(default)]
    pub(super) groups: Vec<String>,
}

/// Objects to be converted.
#[derive(Deserialize)]
pub(super) struct ConversionBody {
    pub(super) uid: String,
    #[serde(rename = "desiredAPIVersion")]
    pub(super) desired_api_version: String,
    pub(super) objects: Vec<Value>,
}

/// Reads an AdmissionReview.
pub(super) fn admission(body: &[u8]) -> Result<AdmissionBody, Refusal> {
    read(body, "admission.k8s.io/v1", "AdmissionReview")
}

/// Reads a ConversionReview.
pub(super) fn conversion(body: &[u8]) -> Result<ConversionBody, Refusal> {
    read(body, "apiextensions.k8s.io/v1", "ConversionReview")
}

fn read<T: for<'a> Deserialize<'a>>(body: &[u8], api_version: &str, kind: &str) -> Result<T, Refusal> {
    let review: Review<T> = serde_json::from_slice(body)
        .map_err(|error| Refusal::malformed(format!("the body is no {kind}: {error}")))?;
    if review.api_version != api_version || review.kind != kind {
        return Err(Refusal::malformed(format!("the body is no {kind} of {api_version}")));
    }
    review.request.ok_or_else(|| Refusal::malformed(format!("the {kind} has no request")))
}

/// The object as a plugin may see it: without managedFields, Secrets blanked. None: there is none.
pub(super) fn shown(mut object: Value) -> Option<Value> {
    if !object.is_object() {
        return None;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if object["kind"] == "Secret" && object["apiVersion"] == "v1" {
        blank_secret(&mut object);
    }
    Some(object)
}

/// An AdmissionReview that answers.
pub(super) fn admission_answer(response: Value) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string()
}

/// A ConversionReview that answers.
pub(super) fn conversion_answer(uid: &str, converted: Result<Vec<Value>, String>) -> String {
    let response = match converted {
        Ok(objects) => json!({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}}),
        Err(message) => {
            json!({"uid": uid, "convertedObjects": [], "result": {"status": "Failure", "message": message}})
        }
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_review_is_refused_with_the_reason() {
        let api_version = "admission.k8s.io/v1";
        for (body, part) in [
            (json!("x").to_string(), "no AdmissionReview: "),
            ("{".to_owned(), "EOF"),
            (json!({"apiVersion": api_version, "kind": "AdmissionReview"}).to_string(), "has no request"),
            (
                json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}).to_string(),
                "of admission.k8s.io/v1",
            ),
            (
                json!({"apiVersion": api_version, "kind": "ConversionReview"}).to_string(),
                "no AdmissionReview of",
            ),
            (
                json!({"apiVersion": api_version, "kind": "AdmissionReview", "request": {"uid": 1}})
                    .to_string(),
                "invalid type",
            ),
        ] {
            let refusal = admission(body.as_bytes()).err().unwrap();
            assert!(refusal.message.contains(part) && refusal.status == 400, "{body}: {}", refusal.message);
        }
        let body =
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {}});
        assert!(conversion(body.to_string().as_bytes()).err().unwrap().message.contains("uid"));
    }

    #[test]
    fn a_plugin_sees_neither_managed_fields_nor_secrets() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "managedFields": [{}]},
                            "data": {"password": "aHVudGVyMg=="}, "stringData": {"other": "hunter2"}});
        let shown_text = shown(secret).unwrap().to_string();
        assert!(!shown_text.contains("unter") && !shown_text.contains("managedFields"), "{shown_text}");
        assert!(
            shown_text.contains("password") && shown_text.contains("pilothouse.dev/blanked"),
            "{shown_text}"
        );
        assert_eq!(shown(Value::Null), None);
    }
}
