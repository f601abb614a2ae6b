//! What a user sees of a plugin's checks.

use serde_json::json;

use super::{deny, guarded, host, object};
use crate::{
    scripted::{SCRIPTED, comes_to},
    support::CONFIG_MAP,
};

#[tokio::test]
async fn a_wrong_object_is_refused_with_its_fields_and_warnings_are_shown() {
    let world = guarded("refuses", &json!({})).await;
    let _host = host(&world).await;

    let mut wrong = object("a", deny("spec.size", "use 0 or more"));
    wrong["spec"]["size"] = json!(-1);
    wrong["spec"]["admission"]["warnings"] = json!(["$(operation) by $(user), dry run: $(dryRun)"]);
    let (accepted, said) = world.try_apply(&wrong).await;
    assert!(!accepted);
    let expected = r#"The Scripted "a" is invalid: spec.size: Invalid value: -1: use 0 or more"#;
    assert!(said.contains(expected), "{said}");
    assert!(said.contains("Warning: create by admin, dry run: false"), "{said}");
    assert!(world.get(SCRIPTED, "a").await.is_none());

    let status = world.server_apply(SCRIPTED, &wrong).await.unwrap_err();
    assert_eq!((status.code, &*status.reason), (422, "Invalid"), "{status:?}");
    let start =
        format!("admission webhook \"scripteds.scripted.pilothouse.dev\" denied the request: {}", SCRIPTED.1);
    assert!(status.message.starts_with(&start), "{}", status.message);
    let causes = status.details.unwrap().causes;
    assert_eq!((&*causes[0].field, &*causes[0].reason), ("spec.size", "FieldValueInvalid"));

    // What is right goes through and is reconciled; a change for the worse is refused.
    let right = object("b", json!({"warnings": ["version $(version)"]}));
    let (accepted, said) = world.try_apply(&right).await;
    assert!(accepted && said.contains("Warning: version 1"), "{said}");
    comes_to(&world, "b", "Succeeded").await;
    let (accepted, said) = world.try_apply(&object("b", deny("", "not so"))).await;
    assert!(!accepted && said.contains("Invalid value: not so"), "{said}");
    assert_eq!(world.get(SCRIPTED, "b").await.unwrap()["spec"], right["spec"]);
    assert!(world.list(CONFIG_MAP).await.iter().all(|map| map["metadata"]["name"] != "a"));
}

#[tokio::test]
async fn deletions_dry_runs_and_subresources_are_asked_about_as_the_guard_says() {
    let guard = json!({"operations": ["create", "update", "delete"], "subresources": ["status"]});
    let world = guarded("asks", &guard).await;
    let _host = host(&world).await;

    let text = "$(operation) $(subresource), dry run: $(dryRun)";
    let kept = object("kept", json!({"warnings": [text]}));
    let dry = world.try_kubectl("apply --dry-run=server -f -", &kept.to_string()).await;
    let said = String::from_utf8_lossy(&dry.stderr).into_owned();
    assert!(dry.status.success() && said.contains("create , dry run: true"), "{said}");
    assert!(world.get(SCRIPTED, "kept").await.is_none());

    assert!(world.try_apply(&kept).await.0);
    let patch = r#"patch scripted kept --subresource=status --type=merge -p {"status":{"a":1}}"#;
    let output = world.try_kubectl(patch, "").await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("update status, dry run: false"), "{said}");

    let output = world.try_kubectl("delete scripted kept --dry-run=server", "").await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("delete , dry run: true"), "{said}");
}
