//! A plugin that does what the object's own spec says, so that one plugin drives every behaviour of the host on a real
//! API server. Tests write name, kind, version and parts of the manifest into the component, where [`SCRIPT`] lies.
//!
//! The spec is a script, or for kinds whose spec is not free the JSON text in the annotation
//! `test.pilothouse.dev/script`: an object with any of these fields.
//! - `children`: objects, each applied.
//! - `grow`: while there are fewer children than `to`, `child` is applied: one more in each pass.
//! - `actions`: in the words of the contract; see `actions.rs`.
//! - `status`: set as it is. `report`: true adds to it, as `observed`, what the pass was shown.
//! - `requeueAfterMs`.
//! - `needs`: `apiVersion`, `kind` and `name` of an object that is looked up; while there is none the pass does nothing
//!   and fails with `retry`.
//! - `reads`: `field` of the spec, a whole number; if it is none the pass does nothing and fails with `failure`.
//! - `failure`: `{"invalid": …}` or `{"retry": …}`.
//! - `behaviour`: `trap`, `loop` or `allocate`. `work`: that many turns of a loop.
//! - `deleting`: the script of the passes that finalize; left out, they release.
//! - `admission`, `conversion`: what webhooks say of the object; see `webhooks.rs`.
//! - `onVersion`: by version of the plugin, fields that replace those above. `onLast`: the same, by the reason of the
//!   first action that failed in the pass before.
//!
//! `$(now)`, `$(seed)`, `$(name)`, `$(namespace)` and `$(uid)` in any string of it stand for what the pass was given,
//! and a string `$(fill:N)` for N characters.

#![allow(missing_docs, unsafe_code, reason = "generated bindings")]
#![allow(clippy::pedantic, reason = "generated bindings")]

mod actions;
mod manifest;
mod webhooks;

use std::hint::black_box;

use serde_json::{Value, json};

wit_bindgen::generate!({
    path: "../../../wit",
    inline: "
        package test:scripted;
        world scripted {
            include pilothouse:operator/plugin@0.1.0;
            export pilothouse:operator/admission@0.1.0;
            export pilothouse:operator/conversion@0.1.0;
        }
    ",
    world: "test:scripted/scripted",
    generate_all,
});

use exports::pilothouse::operator::reconciler::{Guest, Observed};
use pilothouse::operator::types::{Desired, Failure, Outcome};

/// `script=` and a JSON object, padded with dots: `name`, `kind`, `version` and what [`manifest`] knows.
#[used]
static SCRIPT: [u8; 4096] = place();

const fn place() -> [u8; 4096] {
    let (mark, mut place, mut at) = (b"script=", [b'.'; 4096], 0);
    while at < mark.len() {
        place[at] = mark[at];
        at += 1;
    }
    place
}

/// What the test wrote; an empty object if it wrote nothing.
fn written() -> Value {
    let text = std::str::from_utf8(black_box(&SCRIPT)).unwrap_or_default();
    let text = text.trim_start_matches("script=");
    let first = serde_json::Deserializer::from_str(text).into_iter().next();
    first.and_then(Result::ok).unwrap_or_else(|| json!({}))
}

struct Scripted;

export!(Scripted);

impl Guest for Scripted {
    fn describe() -> String {
        manifest::manifest(&written()).to_string()
    }

    fn reconcile(desired: Desired, observed: Observed) -> Outcome {
        let primary: Value = match serde_json::from_str(&desired.primary) {
            Ok(primary) => primary,
            Err(error) => return failed(Failure::Invalid(error.to_string())),
        };
        let annotated = primary["metadata"]["annotations"]["test.pilothouse.dev/script"].as_str();
        if !desired.deleting && !matches!(primary["spec"], Value::Object(_) | Value::Null) {
            return failed(Failure::Invalid("spec: is no object".to_owned()));
        }
        let told = match annotated.map(serde_json::from_str) {
            None => primary["spec"].clone(),
            Some(Ok(script)) => script,
            Some(Err(error)) => return failed(Failure::Invalid(format!("script: {error}"))),
        };
        let mut script = match &told["deleting"] {
            _ if !desired.deleting => told,
            Value::Null => json!({"actions": [{"release": true}]}),
            script => script.clone(),
        };
        let version = written()["version"].as_str().unwrap_or_default().to_owned();
        let last = observed.last.first().map_or("", |rejected| rejected.reason.as_str());
        for replaced in [script["onVersion"][version].clone(), script["onLast"][last].clone()] {
            for (field, value) in replaced.as_object().into_iter().flatten() {
                script[field] = value.clone();
            }
        }
        fill_in(&mut script, &desired, &primary["metadata"]);
        perform(&script, &primary["spec"], &observed)
    }
}

fn perform(script: &Value, spec: &Value, observed: &Observed) -> Outcome {
    behave(script);
    if let Some(field) = script["reads"]["field"].as_str()
        && !spec[field].is_i64()
    {
        return Outcome { actions: Vec::new(), failure: failure(&script["reads"]["failure"]) };
    }
    if let Some(needed) = script["needs"].as_object() {
        match observed.related.iter().find(|answer| answer.query == "needs") {
            None => {
                let mut query = needed.clone();
                query.insert("id".to_owned(), json!("needs"));
                return match actions::action("lookUp", &Value::Object(query)) {
                    Ok(look_up) => Outcome { actions: vec![look_up], failure: None },
                    Err(error) => failed(Failure::Invalid(error)),
                };
            }
            Some(answer) if answer.objects.is_empty() => {
                return failed(Failure::Retry(format!("{} is not there yet", needed["name"])));
            }
            Some(_) => {}
        }
    }
    match actions::of(script, observed) {
        Ok(actions) => Outcome { actions, failure: failure(&script["failure"]) },
        Err(error) => failed(Failure::Invalid(format!("spec: {error}"))),
    }
}

fn behave(script: &Value) {
    match script["behaviour"].as_str() {
        Some("trap") => trap(),
        Some("loop") => work(u64::MAX),
        Some("allocate") => allocate(),
        _ => work(script["work"].as_u64().unwrap_or(0)),
    }
}

fn failed(failure: Failure) -> Outcome {
    Outcome { actions: Vec::new(), failure: Some(failure) }
}

fn failure(told: &Value) -> Option<Failure> {
    let text = |kind: &str| told[kind].as_str().map(str::to_owned);
    text("invalid").map(Failure::Invalid).or_else(|| text("retry").map(Failure::Retry))
}

fn fill_in(value: &mut Value, desired: &Desired, metadata: &Value) {
    match value {
        Value::String(text) if text.contains("$(") => {
            let of = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
            let length = text.strip_prefix("$(fill:").and_then(|rest| rest.strip_suffix(')')?.parse().ok());
            *text = match length {
                Some(length) => "x".repeat(length),
                None => text
                    .replace("$(now)", &desired.now)
                    .replace("$(seed)", &desired.seed.to_string())
                    .replace("$(name)", &of("name"))
                    .replace("$(namespace)", &of("namespace"))
                    .replace("$(uid)", &of("uid")),
            };
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_in(item, desired, metadata)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill_in(field, desired, metadata)),
        _ => {}
    }
}

fn work(turns: u64) {
    let mut count = 0_u64;
    while count < turns {
        count = black_box(count + 1);
    }
}

fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    std::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    std::process::abort()
}

fn allocate() -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(vec![1_u8; 1 << 20]));
    }
}
