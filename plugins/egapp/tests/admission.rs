//! What is checked before an application is stored.

use egapp::EgApp;
use pilothouse_sdk::serde_json::{Value, json};
use pilothouse_sdk::testing::Request;

fn spec(change: Value) -> Value {
    let mut spec = json!({"framework": "go", "environment": "dev"});
    for (field, value) in change.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    spec
}

fn created(name: &str, change: Value) -> String {
    Request::<EgApp>::create(name, spec(change)).validate().to_string()
}

fn updated(old: Value, new: Value) -> String {
    Request::<EgApp>::update("shop", spec(old), spec(new)).validate().to_string()
}

#[test]
fn a_right_application_may_be_stored() {
    assert_eq!(created("shop", json!({"appId": "web", "replicaCount": 0})), "");
    assert_eq!(created("", json!({})), "", "the name is to be generated");
}

#[test]
fn each_wrong_field_is_named() {
    let said = created("web.shop", json!({"appId": "Web_1", "replicaCount": -1, "image": ""}));
    let fields: Vec<&str> = said.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(fields, ["metadata.name", "spec.appId", "spec.replicaCount", "spec.image"]);
    assert!(
        created("shop", json!({"framework": "rust"})).starts_with("spec.framework: unknown variant `rust`")
    );
}

#[test]
fn what_is_chosen_once_cannot_change() {
    assert!(updated(json!({}), json!({"framework": "java"})).starts_with("spec.framework: cannot change"));
    assert!(updated(json!({}), json!({"appId": "other"})).starts_with("spec.appId: cannot change"));
    // Leaving it out means the resource's name.
    assert_eq!(updated(json!({}), json!({"appId": "shop"})), "");
}

#[test]
fn what_was_chosen_is_what_the_status_says() {
    let mut request = Request::<EgApp>::update("shop", spec(json!({})), spec(json!({"framework": "java"})));
    let mut stored = (**request.asked.old_object.as_ref().expect("an update has one")).clone();
    stored["status"] = json!({"identity": {"appId": "shop", "framework": "java"}});
    request.asked.old_object = Some(stored.into());
    assert_eq!(request.validate().to_string(), "", "a wrong spec that was stored unchecked may be put right");
}
