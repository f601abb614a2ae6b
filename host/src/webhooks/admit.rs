//! `validate` and `default-fields`: one AdmissionReview.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pilothouse_model::admission::{AdmissionRequest, Operation, Verdict, defaults_patch, is_bookkeeping};
use pilothouse_model::webhook::Purpose;
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::review::{self, AdmissionBody};
use super::service::{Call, Refusal};

/// Answers a review with a review.
pub(super) async fn answer(call: &Call<'_>, purpose: Purpose, body: &[u8]) -> Result<String, Refusal> {
    let request = review::admission(body)?;
    let span = tracing::info_span!(
        "webhook",
        plugin = %call.plugin.prepared.manifest().name,
        webhook = purpose.as_str(),
        kind = request.kind.kind,
        key = %format_args!("{}/{}", request.namespace, request.name),
    );
    decide(call, purpose, request).instrument(span).await.map(review::admission_answer)
}

async fn decide(call: &Call<'_>, purpose: Purpose, request: AdmissionBody) -> Result<Value, Refusal> {
    let operation = match &*request.operation {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        other => return Err(Refusal::malformed(format!("operation `{other}` is not guarded"))),
    };
    let about =
        About { uid: request.uid, group: request.kind.group, kind: request.kind.kind, name: request.name };
    let guards = &call.plugin.prepared.manifest().admission;
    let is_guarded = guards.iter().any(|guard| {
        guard.resource.group == request.resource.group && guard.resource.plural == request.resource.resource
    });
    let (new, old) = (review::shown(request.object), review::shown(request.old_object));
    let allowed = || json!({"uid": about.uid, "allowed": true});
    // A version that guards less has been loaded, and the API server will hear of it in a moment.
    if !is_guarded {
        return Ok(allowed());
    }
    if let (Operation::Update, Some(old), Some(new)) = (operation, &old, &new)
        && request.sub_resource.is_empty()
        && is_bookkeeping(old, new)
    {
        return Ok(allowed());
    }
    let asked = AdmissionRequest {
        operation,
        new: new.as_ref().map(Value::to_string),
        old: old.as_ref().map(Value::to_string),
        user: request.user_info.username,
        groups: request.user_info.groups,
        dry_run: request.dry_run.unwrap_or(false),
        subresource: request.sub_resource,
        config: call.plugin.config.clone(),
        now: Call::now(),
    };
    match purpose {
        Purpose::Validate => validate(call, &about, asked, new.or(old).as_ref()).await,
        _ => match new {
            Some(new) => default_fields(call, &about, asked, &new).await,
            None => Ok(allowed()),
        },
    }
}

/// What the answer is about.
struct About {
    uid: String,
    group: String,
    kind: String,
    name: String,
}

async fn validate(
    call: &Call<'_>,
    about: &About,
    asked: AdmissionRequest,
    object: Option<&Value>,
) -> Result<Value, Refusal> {
    let sandbox = &call.shared.sandbox;
    let verdict = call.wait(sandbox.validate(&call.plugin.prepared, &call.limits(), asked)).await?;
    let verdict = verdict.checked().map_err(|lie| call.lied("validate", &lie))?;
    let mut response = json!({"uid": about.uid, "allowed": verdict.allowed});
    if !verdict.warnings.is_empty() {
        response["warnings"] = json!(verdict.warnings);
    }
    if !verdict.allowed {
        response["status"] = invalid(about, &verdict, object);
    }
    Ok(response)
}

/// The Status of the API server's own validation: kubectl shows each cause with its field.
fn invalid(about: &About, verdict: &Verdict, object: Option<&Value>) -> Value {
    let causes = verdict.causes.iter().map(|cause| (cause, cause.told(object)));
    let texts: Vec<String> = causes
        .clone()
        .map(|(cause, told)| if cause.field.is_empty() { told } else { format!("{}: {told}", cause.field) })
        .collect();
    let problems = if let [one] = &texts[..] { one.clone() } else { format!("[{}]", texts.join(", ")) };
    let dot = if about.group.is_empty() { "" } else { "." };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure",
        "message": format!("{}{dot}{} {:?} is invalid: {problems}", about.kind, about.group, about.name),
        "reason": "Invalid",
        "code": StatusCode::UNPROCESSABLE_ENTITY.as_u16(),
        "details": {
            "group": about.group, "kind": about.kind, "name": about.name,
            "causes": causes
                .map(|(cause, told)| json!({"reason": cause.reason, "message": told, "field": cause.field}))
                .collect::<Vec<_>>(),
        },
    })
}

async fn default_fields(
    call: &Call<'_>,
    about: &About,
    asked: AdmissionRequest,
    before: &Value,
) -> Result<Value, Refusal> {
    let sandbox = &call.shared.sandbox;
    let text = call.wait(sandbox.default_fields(&call.plugin.prepared, &call.limits(), asked)).await?;
    let after: Value = serde_json::from_str(&text).map_err(|error| {
        let name = &call.plugin.prepared.manifest().name;
        let message = format!("plugin `{name}`: `default-fields` returned no JSON: {error}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "Refused", message)
    })?;
    let patch = defaults_patch(before, &after).map_err(|lie| call.lied("default-fields", &lie))?;
    let mut response = json!({"uid": about.uid, "allowed": true});
    if !patch.0.is_empty() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(json!(patch).to_string()));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use pilothouse_model::admission::Cause;

    use super::*;

    #[test]
    fn a_denial_is_a_status_as_of_the_api_servers_own_validation() {
        let cause = |field: &str| Cause {
            field: field.to_owned(),
            reason: "FieldValueInvalid".to_owned(),
            message: "use 0 or more".to_owned(),
        };
        let about = About {
            uid: "u".to_owned(),
            group: "example.com".to_owned(),
            kind: "Web".to_owned(),
            name: "shop".to_owned(),
        };
        let object = json!({"spec": {"size": -1, "other": -2}});
        let told = |causes: Vec<Cause>| {
            let verdict = Verdict { causes, ..Verdict::default() };
            invalid(&about, &verdict, Some(&object))
        };
        let one = told(vec![cause("spec.size")]);
        assert_eq!(
            one["message"],
            r#"Web.example.com "shop" is invalid: spec.size: Invalid value: -1: use 0 or more"#
        );
        assert_eq!((&one["reason"], &one["code"]), (&json!("Invalid"), &json!(422)));
        assert_eq!(
            one["details"],
            json!({"group": "example.com", "kind": "Web", "name": "shop", "causes": [
                {"reason": "FieldValueInvalid", "field": "spec.size", "message": "Invalid value: -1: use 0 or more"}]})
        );
        let two = told(vec![cause("spec.size"), cause("")]);
        assert!(
            two["message"].as_str().unwrap().ends_with(
                "is invalid: [spec.size: Invalid value: -1: use 0 or more, Invalid value: use 0 or more]"
            ),
            "{two}"
        );
    }
}
