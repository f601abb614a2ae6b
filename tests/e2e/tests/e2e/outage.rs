//! The API server is away: at the start, later, and silently. Each test has a control plane of its own.

use std::time::Instant;

use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
};
use pilothouse_harness::{ControlPlane, Host, HostOptions, Options, eventually};
use serde_json::{Value, json};

use crate::{
    stamped::{logs, stamp, write},
    support::{CONFIG_MAP, DEADLINE, Kind},
};

const TIDE: Kind = Kind("test.pilothouse.dev/v1", "Tide", "tides");

/// A control plane without controllers, and a host that applies CRDs and so is an administrator.
struct Shore {
    plane: ControlPlane,
    client: Client,
    namespace: String,
    options: HostOptions,
    _plugins: tempfile::TempDir,
}

impl Shore {
    async fn new() -> Self {
        let options = Options { controller_manager: false, ..Options::default() };
        let plane = ControlPlane::start(options).await.unwrap();
        let plugins = tempfile::tempdir().unwrap();
        write(plugins.path(), "tide.wasm", stamp("tide", TIDE, "1"));
        let client = plane.client().await.unwrap();
        let namespace = plane.namespace("tide").await.unwrap();
        let options = HostOptions {
            plugins: vec![plugins.path().to_owned()],
            apply_crds: true,
            namespaces: vec![namespace.clone()],
            ..HostOptions::new(plane.kubeconfig())
        };
        Self { plane, client, namespace, options, _plugins: plugins }
    }

    async fn put(&self, text: &str) {
        let object = json!({
            "apiVersion": TIDE.0, "kind": TIDE.1, "metadata": {"name": "tide"}, "spec": {"text": text},
        });
        let tides = TIDE.api(&self.client, &self.namespace);
        tides.patch("tide", &PatchParams::apply("user").force(), &Patch::Apply(&object)).await.unwrap();
    }

    async fn shows(&self, text: &str) {
        let made = CONFIG_MAP.api(&self.client, &self.namespace);
        eventually(DEADLINE, &format!("a ConfigMap with {text}"), || async {
            let data = made.get_opt("tide").await?.map_or(Value::Null, |made| made.data["data"].clone());
            anyhow::ensure!(data["text"] == text, "it has {data}");
            Ok(())
        })
        .await;
    }
}

/// Waits until `/readyz` answers 503 and gives a reason with these words; `/livez` is ok all the while.
async fn is_unready(host: &Host, words: &str) {
    eventually(DEADLINE, &format!("/readyz to say {words}"), || async {
        let (status, body) = host.get("/readyz").await?;
        anyhow::ensure!(status == 503 && body.contains(words), "it says {status} {body}");
        Ok(())
    })
    .await;
    assert_eq!(host.get("/livez").await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_waits_for_an_api_server_that_comes_late_and_outlives_its_absence() {
    let shore = Shore::new().await;
    shore.plane.stop_api_server().unwrap();
    let host = Host::spawn(&shore.options).unwrap();
    is_unready(&host, "API server: not reached yet").await;
    logs(&host, &["waiting for the API server", shore.plane.url()]).await;
    shore.plane.start_api_server().await.unwrap();
    host.ready().await.unwrap();
    assert_eq!(host.log().matches("waiting for the API server").count(), 1, "{}", host.log());
    shore.put("came").await;
    shore.shows("came").await;

    let process = host.process();
    for round in 0..2 {
        shore.plane.stop_api_server().unwrap();
        is_unready(&host, "tide").await;
        shore.plane.start_api_server().await.unwrap();
        // Before the host can have seen that it is back: an edit, and a child that goes.
        let children = CONFIG_MAP.api(&shore.client, &shore.namespace);
        children.delete("tide", &DeleteParams::default()).await.unwrap();
        let text = format!("back {round}");
        shore.put(&text).await;
        shore.shows(&text).await;
        host.ready().await.unwrap();
    }
    assert_eq!(host.process(), process, "the host was restarted");
}

/// A probe may come before the host has looked at anything: what it does not know yet is not ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_has_only_just_begun_does_not_look_ready() {
    const STARTS: usize = 10;
    let shore = Shore::new().await;
    shore.plane.stop_api_server().unwrap();
    for start in 0..STARTS {
        let host = Host::spawn(&shore.options).unwrap();
        let begun = Instant::now();
        // As fast as the host answers, from its first answer on.
        loop {
            assert!(begun.elapsed() < DEADLINE, "{}", host.log());
            let Ok((status, body)) = host.get("/readyz").await else { continue };
            assert_eq!(status, 503, "start {start}: {body}");
            if host.log().contains("waiting for the API server") {
                break;
            }
        }
    }
}

/// Connections stay open and nothing comes: only the host's own questions find it out.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_falls_silent_is_noticed() {
    let shore = Shore::new().await;
    let host = Host::start(shore.options.clone()).await.unwrap();
    shore.put("before").await;
    shore.shows("before").await;
    shore.plane.pause_api_server().unwrap();
    let paused = Instant::now();
    is_unready(&host, "tide").await;
    println!("silence noticed after {:?}", paused.elapsed());
    shore.plane.resume_api_server().unwrap();
    host.ready().await.unwrap();
    shore.put("after").await;
    shore.shows("after").await;
}
