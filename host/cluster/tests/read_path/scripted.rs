//! What a real API server does too rarely to wait for: a listener that answers each request as it was told to.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use pilothouse_cluster::Cluster;
use pilothouse_cluster::watches::{Query, Watches};
use pilothouse_harness::eventually;
use pilothouse_model::manifest::{Resource, Scope};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::{SOON, options};

/// What to answer, and whether to keep the stream open after it.
struct Answer {
    status: u16,
    body: String,
    stays_open: bool,
}

impl Answer {
    fn of(status: u16, body: &Value) -> Self {
        Self { status, body: body.to_string(), stays_open: false }
    }

    fn failure(code: u16, details: &Value) -> Self {
        Self::of(
            code,
            &json!({"kind": "Status", "status": "Failure", "code": code, "message": "scripted", "details": details}),
        )
    }

    fn list(version: u64, next: &str, names: &[(&str, u64)]) -> Self {
        let items: Vec<_> = names.iter().map(|(name, version)| object(name, *version)).collect();
        Self::of(
            200,
            &json!({"metadata": {"resourceVersion": version.to_string(), "continue": next}, "items": items}),
        )
    }

    fn events(lines: &[Value]) -> Self {
        let mut body = String::new();
        for line in lines {
            body.push_str(&line.to_string());
            body.push('\n');
        }
        Self { status: 200, body, stays_open: false }
    }
}

fn object(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()}})
}

fn added(name: &str, version: u64) -> Value {
    json!({"type": "ADDED", "object": object(name, version)})
}

/// One after the other; then nothing any more.
struct Script {
    directory: TempDir,
    /// Query strings of the requests, with the time.
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
    task: AbortHandle,
}

impl Script {
    async fn play(answers: Vec<Answer>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let directory = tempfile::tempdir()?;
        let kubeconfig = json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k"}}],
            "clusters": [{"name": "k", "cluster": {"server": format!("http://{}", listener.local_addr()?)}}]
        });
        std::fs::write(directory.path().join("kubeconfig"), kubeconfig.to_string())?;
        let asked: Arc<Mutex<Vec<(String, Instant)>>> = Arc::default();
        let task = tokio::spawn({
            let asked = Arc::clone(&asked);
            async move {
                let mut open = Vec::new();
                for answer in answers {
                    let (stream, _) = listener.accept().await.unwrap();
                    let mut stream = BufReader::new(stream);
                    let mut first = String::new();
                    stream.read_line(&mut first).await.unwrap();
                    let mut line = String::new();
                    while line != "\r\n" {
                        line.clear();
                        stream.read_line(&mut line).await.unwrap();
                    }
                    let uri = first.split(' ').nth(1).unwrap();
                    let query = uri.split_once('?').unwrap().1.to_owned();
                    asked.lock().unwrap().push((query, Instant::now()));
                    let head = format!("HTTP/1.1 {} Scripted\r\nconnection: close\r\n\r\n", answer.status);
                    stream.write_all((head + &answer.body).as_bytes()).await.unwrap();
                    if answer.stays_open {
                        open.push(stream);
                    }
                }
                std::future::pending::<()>().await;
            }
        });
        Ok(Self { directory, asked, task: task.abort_handle() })
    }

    async fn connect(&self) -> Result<Cluster> {
        Ok(Cluster::open(&options(&self.directory.path().join("kubeconfig"))).await?)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn expired_in_all_three_places_and_throttled_it_goes_on_as_it_should() -> Result<()> {
    let expired = || Answer::failure(410, &json!({}));
    let script = [
        ("sendInitialEvents=true", Answer::failure(422, &json!({}))),
        ("limit=500", Answer::list(10, "next", &[("a", 9)])),
        ("continue=next", expired()),
        ("limit=500", Answer::list(20, "", &[("b", 15)])),
        (
            "resourceVersion=20",
            Answer::events(&[added("c", 21), json!({"type": "ERROR", "object": {"code": 410}})]),
        ),
        ("limit=500", Answer::list(30, "", &[("b", 15), ("c", 21)])),
        ("resourceVersion=30", expired()),
        ("limit=500", Answer::list(40, "", &[("c", 21)])),
        ("resourceVersion=40", Answer::failure(429, &json!({"retryAfterSeconds": 2}))),
        // After a watch that was refused: whether the API server is where it was.
        ("limit=1", Answer::list(40, "", &[("c", 21)])),
        (
            "resourceVersion=40",
            Answer {
                stays_open: true,
                ..Answer::events(&[json!({"type": "MODIFIED", "object": "no object"}), added("d", 41)])
            },
        ),
    ];
    let (expected, answers): (Vec<_>, Vec<_>) = script.into_iter().unzip();
    let script = Script::play(answers).await?;
    let watches = Watches::new(script.connect().await?);
    let resource = Resource {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Thing".to_owned(),
        plural: "things".to_owned(),
        scope: Scope::Cluster,
    };
    let subscription = watches.subscribe(Query::new(resource), |_| {});
    let names = || -> Vec<String> {
        subscription.store().objects().iter().map(|object| object.meta().name.to_string()).collect()
    };
    eventually(SOON, "the last event", || async { names() == ["c", "d"] }).await;
    subscription.synced(SOON).await.unwrap();

    let asked = script.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), expected.len());
    for ((asked, _), expected) in asked.iter().zip(expected) {
        assert!(asked.contains(expected), "{asked}, not {expected}");
        assert!(expected != "limit=500" || !asked.contains("continue="), "{asked}: the expired token");
    }
    assert!(asked[9].1 - asked[8].1 >= Duration::from_secs(2), "sooner than it was told to");
    let counted = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    let counters = watches.counters();
    assert_eq!(
        (counted(&counters.expired), counted(&counters.lists), counted(&counters.malformed)),
        (3, 3, 1)
    );
    Ok(())
}
