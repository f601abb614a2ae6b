//! A cluster whose CRD lacks the rules that the plugin's own has: what was stored under an older one, or where somebody
//! else keeps the CRD. Types and defaults stay.

use pilothouse_harness::eventually;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::support::{DEADLINE, World, pilothouse, plugin, run};

const RULES: [&str; 8] = [
    "x-kubernetes-validations",
    "enum",
    "maxLength",
    "minLength",
    "minimum",
    "maximum",
    "pattern",
    "required",
];

fn without_rules(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.retain(|keyword, _| !RULES.contains(&keyword.as_str()));
    for part in ["properties", "items", "additionalProperties"] {
        match fields.get_mut(part) {
            Some(Value::Object(properties)) if part == "properties" => {
                properties.values_mut().for_each(without_rules);
            }
            Some(schema) => without_rules(schema),
            None => {}
        }
    }
}

/// Held while a CRD of `deploy/` is not what `deploy/` says, and by who compares the two.
pub(crate) static DEFINITIONS: Mutex<()> = Mutex::const_new(());

/// Applies the CRD of a plugin without its rules, and `input` as soon as the API server takes it; then the rules are
/// back. Other tests may bring them back before: then it begins again.
pub(crate) async fn applied_without_rules(world: &World, name: &str, input: &str) {
    written_without_rules(world, name, "apply -f -", input).await;
}

/// The same for any command that writes what it reads from stdin.
pub(crate) async fn written_without_rules(world: &World, name: &str, command: &str, input: &str) {
    let _held = DEFINITIONS.lock().await;
    let (printed, lax) = definitions(name).await;
    eventually(DEADLINE, "the API server to take it without rules", || async {
        applied(world, &lax).await;
        let taken = world.try_kubectl(command, input).await;
        anyhow::ensure!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
        Ok(())
    })
    .await;
    applied(world, &printed).await;
}

/// The CRD of a plugin as it is, and without its rules.
pub(crate) async fn definitions(name: &str) -> (String, String) {
    let printed = run(&pilothouse(), ["crds".as_ref(), plugin(name).as_os_str()]).await;
    let mut lax: Value = serde_saphyr::from_str(&printed).unwrap();
    for version in lax["spec"]["versions"].as_array_mut().unwrap() {
        let schema = version["schema"]["openAPIV3Schema"].as_object_mut().unwrap();
        schema.retain(|keyword, _| !RULES.contains(&keyword.as_str()));
        // Rules of the status are the host's business, and those of the conditions make a map of their list.
        let parts = schema["properties"].as_object_mut().unwrap();
        parts.iter_mut().filter(|(part, _)| *part != "status").for_each(|(_, part)| without_rules(part));
    }
    (printed, lax.to_string())
}

/// Applies a CRD.
pub(crate) async fn applied(world: &World, crd: &str) {
    let output = world.try_kubectl("apply --server-side -f -", crd).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
