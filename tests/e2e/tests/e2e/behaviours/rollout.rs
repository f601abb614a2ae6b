//! Rolling updates of pods, with a host that is killed in the middle, a change that does not work, and an end in the
//! middle.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use kube::{
    ResourceExt as _,
    core::DynamicObject,
    runtime::{
        watcher,
        watcher::Event::{Apply, Delete, InitApply},
    },
};
use pilothouse_harness::eventually;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    scripted::{SCRIPTED, comes_to, perform, world},
    support::{DEADLINE, POD, World},
};

/// A manifest with this strategy for pods, and a finalizer.
fn manifest(method: &str, condition: &str, max_unavailable: u32) -> Value {
    let checks = json!({"conditions": [{"type": condition, "status": "True"}]});
    let strategy = json!({"method": method, "statusChecks": checks, "maxUnavailable": max_unavailable});
    let pods =
        json!({"resource": {"version": "v1", "kind": "Pod", "plural": "pods"}, "updateStrategy": strategy});
    json!({"controller": {"children": [pods]}})
}

fn name(at: usize) -> String {
    format!("p-{at}")
}

fn pods(count: usize, image: &str) -> Value {
    let pod = |at| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name(at)},
            "spec": {"containers": [{"name": "main", "image": image}]}})
    };
    json!({"children": (0..count).map(pod).collect::<Vec<_>>()})
}

/// UID of each pod that runs this image.
async fn running(world: &World, image: &str) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = world.list(POD).await.into_iter().filter(|pod| pod["spec"]["containers"][0]["image"] == image);
    pods.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]))).collect()
}

async fn runs(world: &World, image: &str, count: usize) {
    eventually(DEADLINE, &format!("{count} pods of image {image}"), || async {
        let running = running(world, image).await;
        anyhow::ensure!(running.len() == count, "{running:?}");
        Ok(())
    })
    .await;
}

/// The most pods that were not ready at any moment, as a watch tells it: in the order in which it happened.
struct Unavailable {
    most: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Unavailable {
    async fn watch(world: &World, wanted: usize) -> Self {
        let most = Arc::<Mutex<usize>>::default();
        let (book, api) = (Arc::clone(&most), POD.api(&world.client, &world.namespace));
        let (begun, begins) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let mut begun = Some(begun);
            let mut ready = BTreeMap::new();
            let mut events = watcher(api, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(InitApply(pod)) => {
                        ready.insert(pod.name_any(), is_ready(&pod));
                        continue;
                    }
                    Ok(Apply(pod)) => {
                        ready.insert(pod.name_any(), is_ready(&pod));
                    }
                    Ok(Delete(pod)) => {
                        ready.remove(&pod.name_any());
                    }
                    _ => {}
                }
                let available = ready.values().filter(|ready| **ready).count();
                if available == wanted
                    && let Some(begun) = begun.take()
                {
                    let _ = begun.send(());
                }
                if begun.is_none() {
                    let mut most = book.lock().unwrap();
                    *most = (*most).max(wanted - available);
                }
            }
        });
        begins.await.unwrap();
        Self { most, task }
    }

    fn most(&self) -> usize {
        *self.most.lock().unwrap()
    }
}

impl Drop for Unavailable {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn is_ready(pod: &DynamicObject) -> bool {
    let conditions = pod.data["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|condition| condition["status"] == "True")
}

/// The host is killed again and again; each time the next one goes on from where the pods stand. None is made anew
/// twice, and never more than one is down.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_goes_on_through_kills_with_no_more_down_than_may_be() {
    const PODS: usize = 8;
    let world = world("rolling", &manifest("RollingRecreate", "Ready", 1)).await;
    let host = world.host().await;
    perform(&world, "roll", pods(PODS, "one")).await;
    comes_to(&world, "roll", "Succeeded").await;
    let before = running(&world, "one").await;
    let unavailable = Unavailable::watch(&world, PODS).await;
    let mark = world.mark().await;
    perform(&world, "roll", pods(PODS, "two")).await;
    let mut lives = Vec::new();
    for _ in 0..5 {
        // An instant of its life, from its start on, and not a time that anything is waited for.
        let life = Duration::from_millis(RandomState::new().hash_one(0) % 400);
        lives.push(life);
        sleep(life).await;
        host.kill_9().unwrap();
        host.restart().await.unwrap();
    }
    comes_to(&world, "roll", "Succeeded").await;
    let after = running(&world, "two").await;
    assert_eq!(after.len(), PODS, "killed after {lives:?}");
    assert!(before.iter().all(|(name, uid)| after[name] != *uid));
    assert_eq!(unavailable.most(), 1, "killed after {lives:?}");
    let writes = world.writes_since(mark).await;
    let deletions = writes
        .iter()
        .filter(|write| write.resource == "pods" && write.verb == "delete" && !write.is_dry_run());
    assert_eq!(deletions.count(), PODS, "killed after {lives:?}: {writes:?}");
}

/// A kubelet says a condition of what the pod is now; the stand-in for it says everything about a pod's beginning alone.
async fn say(world: &World, pod: &str, condition: &str, status: &str) {
    let generation = &world.get(POD, pod).await.unwrap()["metadata"]["generation"];
    let conditions = json!([{"type": condition, "status": status}]);
    let patch = json!({"status": {"observedGeneration": generation, "conditions": conditions}});
    let command = format!("patch pod {pod} --subresource=status --type=strategic -p {patch}");
    world.kubectl(&command).await;
}

/// What stands in the way is named in the condition, nothing is written meanwhile, and its change is what goes on, not
/// the clock: the resync is ten minutes away.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_does_not_work_stops_says_why_and_is_mended_by_the_next_one() {
    let world = world("halting", &manifest("RollingInPlace", "test.pilothouse.dev/Happy", 1)).await;
    let _host = world.host().await;
    perform(&world, "halt", pods(3, "one")).await;
    comes_to(&world, "halt", "Succeeded").await;
    for at in 0..3 {
        say(&world, &name(at), "test.pilothouse.dev/Happy", "True").await;
    }
    perform(&world, "halt", pods(3, "bad")).await;
    runs(&world, "bad", 1).await;
    say(&world, "p-0", "test.pilothouse.dev/Happy", "False").await;
    eventually(DEADLINE, "the condition to name what is waited for", || async {
        let message = comes_to(&world, "halt", "Updating").await;
        let wanted =
            "waits for p-0, which its condition test.pilothouse.dev/Happy has status `False`, not `True`";
        anyhow::ensure!(message.contains(wanted) && message.ends_with("(and 1 more)"), "{message}");
        Ok(())
    })
    .await;
    assert_eq!(running(&world, "bad").await.keys().collect::<Vec<_>>(), ["p-0"]);
    // The next change begins with the one that is broken, in the middle of the first roll-out.
    let mark = world.mark().await;
    perform(&world, "halt", pods(3, "good")).await;
    runs(&world, "good", 1).await;
    assert_eq!(running(&world, "good").await.keys().collect::<Vec<_>>(), ["p-0"]);
    for at in 0..3 {
        runs(&world, "good", at + 1).await;
        say(&world, &name(at), "test.pilothouse.dev/Happy", "True").await;
    }
    comes_to(&world, "halt", "Succeeded").await;
    assert_eq!(running(&world, "good").await.len(), 3);
    let writes = world.writes_since(mark).await;
    let updates = writes.iter().filter(|write| write.resource == "pods" && !write.is_dry_run());
    assert_eq!(updates.count(), 3, "one for each pod: {writes:?}");
}

/// MC#144: the primary is deleted while a roll-out waits for what never comes. Its last wish is one more change to all of
/// its pods.
#[tokio::test(flavor = "multi_thread")]
async fn mc_144_a_deletion_in_the_middle_of_a_rolling_update_finishes() {
    let world = world("mc-144", &manifest("RollingRecreate", "test.pilothouse.dev/Happy", 1)).await;
    let host = world.host().await;
    let mut script = pods(3, "one");
    let wishes = pods(3, "last")["children"].as_array().unwrap().clone();
    let wishes = wishes.into_iter().map(|pod| json!({"apply": {"object": pod}}));
    script["deleting"] = json!({"actions": wishes.chain([json!({"release": true})]).collect::<Vec<_>>()});
    perform(&world, "mc-144", script.clone()).await;
    comes_to(&world, "mc-144", "Succeeded").await;
    for at in 0..3 {
        say(&world, &name(at), "test.pilothouse.dev/Happy", "True").await;
    }
    script["children"] = pods(3, "two")["children"].clone();
    perform(&world, "mc-144", script).await;
    runs(&world, "two", 1).await;
    comes_to(&world, "mc-144", "Updating").await;
    world.delete(SCRIPTED, "mc-144").await;
    host.kill_9().unwrap();
    host.restart().await.unwrap();
    world.gone(SCRIPTED, "mc-144").await;
    eventually(DEADLINE, "its pods to be gone", || async { Ok(world.list(POD).await.is_empty()) }).await;
}
