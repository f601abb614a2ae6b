//! A steady stream of applies, and what became of each.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::core::Status;
use serde_json::Value;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{MissedTickBehavior, interval},
};

use crate::{Kind, World, webhooks::server_apply};

/// A hundred in a second.
const PACE: Duration = Duration::from_millis(10);
/// Under way at the same time; a machine that cannot keep up is asked less.
const UNDER_WAY_MAX: usize = 64;

/// Applies that go on until they are stopped.
#[derive(Debug)]
pub struct Stream {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<(Value, Result<Value, Status>)>>,
}

impl Stream {
    /// Begins. `object` makes the object of each number.
    pub fn begin(world: &World, kind: Kind, object: impl Fn(u64) -> Value + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (client, namespace) = (world.client.clone(), world.namespace.clone());
        let task = tokio::spawn(async move {
            let mut ticks = interval(PACE);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let (mut applies, mut ended) = (JoinSet::new(), Vec::new());
            for number in 0.. {
                ticks.tick().await;
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                while applies.len() >= UNDER_WAY_MAX {
                    ended.extend(applies.join_next().await.map(Result::unwrap));
                }
                let (client, namespace, object) = (client.clone(), namespace.clone(), object(number));
                applies.spawn(async move {
                    let applied = server_apply(&client, &namespace, kind, &object).await;
                    (object, applied)
                });
            }
            ended.extend(applies.join_all().await);
            ended
        });
        Self { stop, task }
    }

    /// Ends it, and says what became of each.
    pub async fn end(self) -> Vec<(Value, Result<Value, Status>)> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Asserts that all were taken, and returns how many there were.
pub fn all_taken(ended: &[(Value, Result<Value, Status>)]) -> usize {
    let failed: Vec<&Status> = ended.iter().filter_map(|(_, applied)| applied.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} of {} failed, first {:?}", failed.len(), ended.len(), failed[0]);
    ended.len()
}
