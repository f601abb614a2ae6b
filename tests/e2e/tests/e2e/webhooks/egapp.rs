//! EGApp, checked by its webhook alone, and by its passes alone.

use pilothouse_e2e::{EG_APP, webhooks::free_port};
use pilothouse_harness::{Host, eventually};
use serde_json::{Value, json};

use crate::{
    lax::{DEFINITIONS, applied, applied_without_rules, definitions},
    stamped::reconciled,
    support::{DEADLINE, World, plugin},
};

fn app(name: &str, change: &Value) -> Value {
    let mut spec = json!({"framework": "go", "environment": "dev"});
    for (field, value) in change.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": EG_APP.0, "kind": EG_APP.1, "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn where_the_schema_has_no_rules_the_webhook_refuses_and_without_it_the_pass() {
    let world = World::granted("egapp-hook", &[plugin("egapp")]).await;
    let port = free_port();
    let host = Host::start(world.guarding(port, port)).await.unwrap();
    world.apply(&app("kept", &json!({})).to_string()).await;
    world.ready(EG_APP, "kept").await;

    let held = DEFINITIONS.lock().await;
    let (printed, lax) = definitions("egapp").await;
    for (name, change, part) in [
        ("wrong", json!({"appId": "Web_1"}), "spec.appId: Invalid value: \"Web_1\": use at most 63"),
        ("wrong", json!({"image": ""}), "spec.image: Invalid value: \"\": name an image"),
        ("wrong", json!({"framework": "rust"}), "spec.framework: Invalid value: \"rust\": unknown variant"),
        ("kept", json!({"framework": "java"}), "spec.framework: Invalid value: \"java\": cannot change"),
        ("kept", json!({"appId": "other"}), "spec.appId: Invalid value: \"other\": cannot change"),
    ] {
        // Other tests bring the rules back; without them it is the webhook that says no.
        eventually(DEADLINE, &format!("the webhook to refuse {change}"), || async {
            applied(&world, &lax).await;
            let status = world.server_apply(EG_APP, &app(name, &change)).await.unwrap_err();
            let denied = "admission webhook \"egapps.egapp.pilothouse.dev\" denied the request";
            anyhow::ensure!(
                status.message.contains(denied) && status.message.contains(part),
                "{}",
                status.message
            );
            Ok(())
        })
        .await;
    }
    applied(&world, &printed).await;
    drop(held);

    // Nobody serves the webhook and nothing tells the API server of it: the pass says it.
    assert_eq!(host.terminate().await.unwrap(), "exit status: 0");
    pilothouse_e2e::VALIDATING
        .cluster_api(&world.client)
        .delete(&world.namespace, &kube::api::DeleteParams::default())
        .await
        .unwrap();
    let _host = world.host().await;
    let wrong = app("wrong", &json!({"appId": "Web_1"})).to_string();
    applied_without_rules(&world, "egapp", &wrong).await;
    let said = reconciled(&world, EG_APP, "wrong", "InvalidResource").await;
    assert!(said["message"].as_str().unwrap().starts_with("spec.appId: use at most 63"), "{said}");
}
