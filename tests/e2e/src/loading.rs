//! One plugin that comes and goes again and again, beside one that stays.

use std::collections::{BTreeSet, HashSet};

use pilothouse_harness::{Host, HostOptions, audit::Stage, eventually};
use serde_json::json;

use crate::{
    DEADLINE, Kind, World,
    mounted::Mounted,
    stamped::{put, serves, shows, stamp, world},
};

const COME: Kind = Kind("test.pilothouse.dev/v1", "Come", "comes");
const STAY: Kind = Kind("test.pilothouse.dev/v1", "Stay", "stays");
/// Loads over which the median of the resident memory is taken: single figures move by some hundred KiB with the
/// allocator's arenas and the pool's slots.
const WINDOW: usize = 20;

/// Resident memory of the host, bytes: medians of [`WINDOW`] loads.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// After the first loads, which fill caches of the allocator, the engine and the connections.
    pub warm: u64,
    /// After the last ones.
    pub end: u64,
}

/// CR#2099, #1884: so many loads and unloads of a plugin. Each time it serves what was there before it came. In the
/// end series, watches, threads and open files are those of before, what stayed was not touched by any of it, and its
/// events still arrive. The memory is for the caller to judge, from the load `warm` on.
///
/// # Panics
/// If any of that does not hold.
pub async fn loaded_and_unloaded(loads: usize, warm: usize) -> Memory {
    let world = world("come", &[("come", COME), ("stay", STAY)]).await;
    let stay = stamp("stay", STAY, "1");
    let mut mounted = Mounted::new();
    mounted.show(&[("stay.wasm", &stay)]);
    let host = Host::start(HostOptions { plugins: vec![mounted.path().to_owned()], ..world.options() });
    let host = host.await.unwrap();
    put(&world, STAY, "stay", json!({"text": "a"})).await;
    shows(&world, "stay", &[("text", "a")]).await;
    put(&world, COME, "come", json!({"text": "a"})).await;
    let mark = world.mark().await;
    let (watches, mut series_before) = (open_watches(&world), BTreeSet::new());
    assert!(watches > 0);

    let (mut memory, mut handles_before) = (Vec::with_capacity(loads), None);
    for load in 1..=loads {
        // Few versions, so that most loads find compiled code; the next one is another all the same.
        let version = (load % 5).to_string();
        mounted.show(&[("come.wasm", &stamp("come", COME, &version)), ("stay.wasm", &stay)]);
        shows(&world, "come", &[("version", &version)]).await;
        mounted.show(&[("stay.wasm", &stay)]);
        serves(&host, &[("stay", "1")]).await;
        memory.push(host.usage().unwrap().rss_bytes);
        if load == warm {
            handles_before = Some(handles(&host));
            series_before = series(&host).await.unwrap();
        }
    }
    eventually(DEADLINE, "the series of before", || async {
        let now = series(&host).await?;
        let more: Vec<_> = now.difference(&series_before).collect();
        let of_it: Vec<_> = now.iter().filter(|series| series.contains("\"come")).collect();
        anyhow::ensure!(more.is_empty() && of_it.is_empty(), "there are {more:?}, {of_it:?}");
        Ok(())
    })
    .await;
    eventually(DEADLINE, "the watches of before", || async {
        let now = open_watches(&world);
        anyhow::ensure!(now == watches, "{now} are open, {watches} were");
        Ok(())
    })
    .await;
    let (threads, files) = handles_before.unwrap();
    eventually(DEADLINE, "the threads and descriptors of before", || async {
        let now = handles(&host);
        anyhow::ensure!(now.0 <= threads && now.1 <= files, "{now:?}, {threads} and {files} before");
        Ok(())
    })
    .await;
    let writes = world.writes_since(mark).await;
    assert!(writes.iter().all(|write| write.name != "stay"), "{writes:?}");
    put(&world, STAY, "stay", json!({"text": "b"})).await;
    shows(&world, "stay", &[("text", "b")]).await;

    let memory = Memory { warm: median(&memory[..warm]), end: median(&memory) };
    eprintln!(
        "resident after {warm} loads {} KiB, after {loads} {} KiB",
        memory.warm >> 10,
        memory.end >> 10
    );
    memory
}

/// Of the last figures.
fn median(figures: &[u64]) -> u64 {
    let mut last = figures[figures.len().saturating_sub(WINDOW)..].to_vec();
    last.sort_unstable();
    last[last.len() / 2]
}

/// The names of all series that the host shows. Buckets and reasons are made when something first falls into them, so
/// only those with a plugin or a controller can be compared.
async fn series(host: &Host) -> anyhow::Result<BTreeSet<String>> {
    let metrics = host.metrics().await?;
    let owned = metrics
        .iter()
        .filter(|(series, _)| ["plugin=", "controller=", "kind="].iter().any(|label| series.contains(label)));
    Ok(owned.map(|(series, _)| series.to_owned()).collect())
}

/// Watches of this world's host that the API server has begun and not ended.
fn open_watches(world: &World) -> usize {
    let mut open = HashSet::new();
    for event in world.plane.audit_events().unwrap() {
        if event.user != world.user || event.verb != "watch" {
            continue;
        }
        match event.stage {
            Stage::ResponseStarted => open.insert(event.id),
            _ => open.remove(&event.id),
        };
    }
    open.len()
}

/// Threads and open files of the host.
fn handles(host: &Host) -> (usize, usize) {
    let pid = host.process().unwrap().pid;
    let count = |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    (count("task"), count("fd"))
}
