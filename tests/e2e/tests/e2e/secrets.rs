//! Values of Secrets stay where they are, however much is logged.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use pilothouse_harness::{Host, HostOptions};
use serde_json::{Value, json};

use crate::{
    scripted::{comes_to, perform, world},
    support::Kind,
};

const SECRET: Kind = Kind("v1", "Secret", "secrets");

/// Of a Secret that the host drew, of one that a plugin applies, and of three that the API server refuses in words of its
/// own: a key that is none, a value that may not change, a value that is no base64.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_secrets_are_in_no_line_of_the_log() {
    let world = world("secret-log", &json!({})).await;
    let mut options: HostOptions = world.options();
    options.environment.insert("PILOTHOUSE_LOG".to_owned(), "trace".to_owned());
    let host = Host::start(options).await.unwrap();

    let secret = |name: &str, part: Value| {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        secret.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        secret
    };
    let drawn = json!([{"generateSecret": {"name": "drawn", "random": {"password": 32}}}]);
    perform(&world, "drawn", json!({"actions": drawn})).await;
    comes_to(&world, "drawn", "Succeeded").await;
    let applied = secret("applied", json!({"stringData": {"k": "value-applied"}, "immutable": true}));
    perform(&world, "applied", json!({"children": [applied]})).await;
    comes_to(&world, "applied", "Succeeded").await;
    let changed = secret("applied", json!({"stringData": {"k": "value-changed"}, "immutable": true}));
    perform(&world, "applied", json!({"children": [changed]})).await;
    comes_to(&world, "applied", "WriteFailed").await;
    for (name, part) in [
        ("key", json!({"stringData": {"no key": "value-keyed"}})),
        ("base64", json!({"data": {"k": "value-not-base64"}})),
        ("field", json!({"data": {"k": {"value-nested": "value-nested"}}})),
    ] {
        perform(&world, name, json!({"children": [secret(name, part)]})).await;
        comes_to(&world, name, "WriteFailed").await;
    }

    let password = world.get(SECRET, "drawn").await.unwrap()["data"]["password"].clone();
    let password = String::from_utf8(STANDARD.decode(password.as_str().unwrap()).unwrap()).unwrap();
    assert_eq!(password.len(), 32);
    let values =
        ["value-applied", "value-changed", "value-keyed", "value-not-base64", "value-nested", &password];
    let log = host.log();
    assert!(log.contains(" TRACE ") && log.contains("Secret") && log.contains("pass failed"));
    let scripts = world.list(crate::scripted::SCRIPTED).await;
    for value in values {
        for form in [value.to_owned(), STANDARD.encode(value)] {
            if let Some(line) = log.lines().find(|line| line.contains(&form)) {
                panic!("{form}: {line:.2000}");
            }
            // Nor where they would be kept for everybody who may read the resource.
            for script in &scripts {
                let said = script["status"].to_string();
                assert!(!said.contains(&form), "{form}: {said}");
            }
        }
    }
}
