//! Hosts that end, die and come while applies go on.

use pilothouse_e2e::{
    CONFIG_MAP,
    balancer::Balancer,
    stream::{Stream, all_taken},
    webhooks::free_port,
};
use pilothouse_harness::{Host, eventually};
use serde_json::{Value, json};

use super::{guarded, object};
use crate::{
    scripted::{SCRIPTED, config_map},
    support::{DEADLINE, World},
};

/// Objects whose ConfigMap of the same name shows the last number.
fn numbered(number: u64) -> Value {
    let name = format!("o-{}", number % 30);
    let mut object = object(&name, json!({}));
    object["spec"]["children"] = json!([config_map(&name, &number.to_string())]);
    object
}

/// Waits until each object's last stored spec is reconciled.
async fn all_reconciled(world: &World) {
    eventually(DEADLINE, "what was stored to be reconciled", || async {
        let maps = world.list(CONFIG_MAP).await;
        for object in world.list(SCRIPTED).await {
            let wanted = &object["spec"]["children"][0];
            let made = maps.iter().find(|map| map["metadata"]["name"] == object["metadata"]["name"]);
            let made = made.map_or(Value::Null, |map| map["data"].clone());
            anyhow::ensure!(made == wanted["data"], "{made} instead of {}", wanted["data"]);
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn two_replicas_restart_one_after_the_other_and_no_apply_fails() {
    let world = guarded("replicas", &json!({})).await;
    let service = Balancer::start().await;
    let ports = [free_port(), free_port()];
    let start = |port: u16| Host::start(world.guarding(port, service.port()));
    let (first, second) = tokio::join!(start(ports[0]), start(ports[1]));
    let mut hosts = [first.unwrap(), second.unwrap()];
    for port in ports {
        service.join(port);
    }

    let stream = Stream::begin(&world, SCRIPTED, numbered);
    for (host, port) in hosts.iter_mut().zip(ports) {
        let (ended, ()) = tokio::join!(host.terminate(), service.leave(port));
        assert_eq!(ended.unwrap(), "exit status: 0");
        // As a Deployment does, the next begins when the new one is ready.
        *host = Host::start(world.guarding(port, service.port())).await.unwrap();
        service.join(port);
    }
    let taken = all_taken(&stream.end().await);
    assert!(taken > 100, "{taken}");
    all_reconciled(&world).await;
}

#[tokio::test]
async fn with_the_only_host_down_the_policy_says_what_becomes_of_applies() {
    for policy in ["Fail", "Ignore"] {
        let world = guarded("down", &json!({"failurePolicy": policy})).await;
        let port = free_port();
        let host = Host::start(world.guarding(port, port)).await.unwrap();
        let stream = Stream::begin(&world, SCRIPTED, numbered);
        eventually(DEADLINE, "the first objects", || async { Ok(world.list(SCRIPTED).await.len() > 5) })
            .await;
        host.kill_9().unwrap();
        // While nobody answers.
        let while_down = world.server_apply(SCRIPTED, &numbered(29)).await;
        let host = Host::start(world.guarding(port, port)).await.unwrap();
        let ended = stream.end().await;
        let refused: Vec<_> = ended.iter().filter_map(|(_, applied)| applied.as_ref().err()).collect();
        if policy == "Ignore" {
            assert!(while_down.is_ok() && refused.is_empty(), "{while_down:?}, {:?}", refused.first());
        } else {
            let status = while_down.unwrap_err();
            let called = "failed calling webhook \"scripteds.scripted.pilothouse.dev\"";
            assert!(
                status.message.contains(called) && status.message.contains("refused"),
                "{}",
                status.message
            );
            for status in &refused {
                assert!(status.code == 500 && status.message.contains(called), "{status:?}");
            }
        }
        // Each that was taken is stored, the last of each name.
        for object in world.list(SCRIPTED).await {
            let name = &object["metadata"]["name"];
            let numbers = ended
                .iter()
                .filter(|(wanted, applied)| applied.is_ok() && wanted["metadata"]["name"] == *name);
            let stored = &object["spec"]["children"][0]["data"];
            let known =
                numbers.into_iter().any(|(wanted, _)| wanted["spec"]["children"][0]["data"] == *stored);
            assert!(known || *name == "o-29", "{name}: {stored}");
        }
        all_reconciled(&world).await;
        drop(host);
    }
}
