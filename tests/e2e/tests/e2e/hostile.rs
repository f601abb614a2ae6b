//! Plugins that misbehave (the guest `hostile`): the pass fails with the reason in a condition, an event and a count,
//! neighbours go on, and the host is as it was. GMC#54: one that never returned stopped all.

use std::time::{Duration, Instant};

use pilothouse_guests::hostile;
use pilothouse_harness::{Host, HostOptions, eventually};
use serde_json::{Value, json};

use crate::{
    mounted::Mounted,
    stamped::{assert_ready, count, counts, put, reconciled, serves, shows, stamp, write},
    support::{CONFIG_MAP, DEADLINE, EVENT, Kind, World},
};

/// Served by the hostile plugin. Tests see only the objects of their namespace.
const HOSTILE: Kind = Kind("test.pilothouse.dev/v1", "Hostile", "hostiles");
/// Served by its neighbour.
const CALM: Kind = Kind("test.pilothouse.dev/v1", "Calm", "calms");

/// A world with the hostile plugin and its neighbour, and their directory.
async fn neighbours(prefix: &str, settings: &str) -> (World, Mounted) {
    let files = tempfile::tempdir().unwrap();
    let calm = stamp("calm", CALM, "1");
    let plugins = [write(files.path(), "hostile.wasm", hostile()), write(files.path(), "calm.wasm", &calm)];
    let world = World::granted(prefix, &plugins).await;
    let mut mounted = Mounted::new();
    mounted.show(&[("hostile.wasm", hostile()), ("hostile.yaml", settings.as_bytes()), ("calm.wasm", &calm)]);
    (world, mounted)
}

async fn start(world: &World, mounted: &Mounted) -> Host {
    let options = HostOptions { plugins: vec![mounted.path().to_owned()], ..world.options() };
    Host::start(options).await.unwrap()
}

/// One way to misbehave, and what is said of it.
struct Misdeed {
    behaviour: &'static str,
    amount: u64,
    /// In the condition and the event.
    reason: &'static str,
    /// In the message of both.
    words: &'static str,
    /// In the metric.
    fault: &'static str,
}

const MISDEEDS: [Misdeed; 11] = {
    const fn misdeed(
        behaviour: &'static str,
        amount: u64,
        reason: &'static str,
        words: &'static str,
        fault: &'static str,
    ) -> Misdeed {
        Misdeed { behaviour, amount, reason, words, fault }
    }
    [
        misdeed("trap", 0, "PluginTrapped", "unreachable", "Trap"),
        misdeed("panic", 0, "PluginTrapped", "the plugin's author made a mistake", "Trap"),
        misdeed("recurse", 0, "PluginTrapped", "trapped", "Trap"),
        misdeed("loop", 0, "LimitExceeded", "1000 ms of CPU time", "CpuLimit"),
        misdeed("allocate", 0, "LimitExceeded", "64 MiB of memory", "MemoryLimit"),
        // So many take more room than they are allowed, even before they are counted.
        misdeed("many-actions", 100_000, "LimitExceeded", "8 MiB of output", "OutputLimit"),
        misdeed("much-output", 0, "LimitExceeded", "8 MiB of output", "OutputLimit"),
        misdeed("invalid-utf8", 0, "PluginTrapped", "UTF-8", "InvalidOutput"),
        misdeed("garbage-json", 0, "OutcomeRefused", "action 0 (apply): object: ", "Malformed"),
        misdeed("foreign-kind", 0, "OutcomeRefused", "ClusterRoleBinding", "KindNotDeclared"),
        misdeed("other-namespace", 0, "OutcomeRefused", "kube-system", "NamespaceNotGranted"),
    ]
};

#[tokio::test(flavor = "multi_thread")]
async fn each_misdeed_is_said_in_a_condition_an_event_and_a_metric() {
    let (world, mounted) = neighbours("hostile", "backoff: {baseMs: 1000}").await;
    let host = start(&world, &mounted).await;
    put(&world, CALM, "calm", json!({"text": "before"})).await;
    shows(&world, "calm", &[("text", "before")]).await;
    for Misdeed { behaviour, amount, .. } in MISDEEDS {
        put(&world, HOSTILE, behaviour, json!({"behaviour": behaviour, "amount": amount})).await;
    }
    for Misdeed { behaviour, reason, words, fault, .. } in MISDEEDS {
        let condition = reconciled(&world, HOSTILE, behaviour, reason).await;
        assert_eq!(condition["status"], "False", "{behaviour}: {condition}");
        assert!(text(&condition["message"]).contains(words), "{behaviour}: {condition}");
        let event = eventually(DEADLINE, &format!("an event about `{behaviour}`"), || async {
            let events = world.list(EVENT).await;
            Ok(events
                .into_iter()
                .find(|event| event["regarding"]["name"] == behaviour && event["reason"] == reason))
        })
        .await;
        assert_eq!(event["type"], "Warning", "{behaviour}: {event}");
        assert!(text(&event["note"]).contains(words), "{behaviour}: {event}");
        let labels = [("controller", "hostile/Hostile.test.pilothouse.dev"), ("reason", fault)];
        counts(&host, "pilothouse_plugin_faults_total", &labels, 1).await;
        counts(&host, "pilothouse_pass_failures_total", &[labels[0], ("reason", reason)], 1).await;
    }
    // What it reached for is not there.
    let planted = CONFIG_MAP.api(&world.client, "kube-system").get_opt("planted").await.unwrap();
    assert!(planted.is_none(), "{planted:?}");
    let bound = world.try_kubectl("get clusterrolebinding all-mine", "").await;
    assert!(String::from_utf8_lossy(&bound.stderr).contains("NotFound"), "{bound:?}");
    // The neighbour and the host are as they were.
    put(&world, CALM, "calm", json!({"text": "after"})).await;
    shows(&world, "calm", &[("text", "after")]).await;
    let failed =
        count(&host, "pilothouse_pass_failures_total", &[("controller", "calm/Calm.test.pilothouse.dev")])
            .await;
    assert_eq!(failed, 0);
    assert_ready(&host).await;
}

/// A flood of lines is no failure; the log takes a hundred of them and the number of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_log_lines_is_cut() {
    let (world, mounted) = neighbours("flood", "").await;
    let host = start(&world, &mounted).await;
    put(&world, HOSTILE, "flood", json!({"behaviour": "log-flood", "amount": 10_000})).await;
    reconciled(&world, HOSTILE, "flood", "Succeeded").await;
    let log = host.log();
    assert!(log.contains("line 99") && !log.contains("line 100"), "{log}");
    assert!(log.contains("9900 log lines over the limit"), "{log}");
}

/// Ten objects whose passes loop until their limit ends them, again and again, and a neighbour with work to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_goes_on_beside_ten_endless_loops() {
    const EDITS: usize = 50;
    let (world, mounted) = neighbours("loops", "backoff: {baseMs: 1, capMs: 10}").await;
    let host = start(&world, &mounted).await;
    put(&world, CALM, "calm", json!({"text": "before"})).await;
    shows(&world, "calm", &[("text", "before")]).await;
    for at in 0..10 {
        put(&world, HOSTILE, &format!("loop-{at}"), json!({"behaviour": "loop"})).await;
    }
    counts(&host, "pilothouse_plugin_faults_total", &[("reason", "CpuLimit")], 10).await;

    let mut delays = Vec::new();
    for edit in 0..EDITS {
        let text = format!("edit {edit}");
        let begun = Instant::now();
        put(&world, CALM, "calm", json!({"text": text})).await;
        shows(&world, "calm", &[("text", &text)]).await;
        delays.push(begun.elapsed());
    }
    delays.sort_unstable();
    let (p50, p99) = (delays[EDITS / 2], delays[EDITS * 99 / 100]);
    println!("from edit to child beside ten endless loops: p50 {p50:?}, p99 {p99:?}");
    assert!(p99 < Duration::from_secs(10), "p50 {p50:?}, p99 {p99:?}");
    // They go on looping: the edits may have been quicker than the limit.
    counts(&host, "pilothouse_plugin_faults_total", &[("reason", "CpuLimit")], 11).await;
}

/// Memory that guests took, and results that were refused, are given back. The allocator keeps some of it for the next
/// time: less than if a single one in a hundred misdeeds left its memory behind, or each of them half a MiB.
#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_memory_returns() {
    const KEPT_MAX: u64 = 64 << 20;
    const GREEDY: [&str; 3] = ["allocate", "much-output", "many-actions"];
    let (world, mounted) = neighbours("memory", "backoff: {baseMs: 1, capMs: 10}").await;
    let host = start(&world, &mounted).await;
    let all = async |behaviour: Option<&str>| {
        for greedy in GREEDY {
            for at in 0..4 {
                let spec = json!({"behaviour": behaviour.unwrap_or(greedy), "amount": 100_000});
                put(&world, HOSTILE, &format!("{greedy}-{at}"), spec).await;
            }
        }
    };
    all(Some("child")).await;
    reconciled(&world, HOSTILE, "allocate-0", "Succeeded").await;
    let bound = host.usage().unwrap().rss_bytes + KEPT_MAX;
    for round in 1..=2 {
        all(None).await;
        for fault in ["MemoryLimit", "OutputLimit"] {
            let faults = 60 * round;
            counts(&host, "pilothouse_plugin_faults_total", &[("reason", fault)], faults).await;
        }
        all(Some("child")).await;
        for greedy in GREEDY {
            reconciled(&world, HOSTILE, &format!("{greedy}-0"), "Succeeded").await;
        }
        let usage = eventually(DEADLINE, "the host's memory to return", || async {
            let usage = host.usage()?;
            anyhow::ensure!(usage.rss_bytes < bound, "{usage:?}, {bound} bytes would do");
            Ok(Some(usage))
        })
        .await;
        println!(
            "round {round}: RSS {} KiB, at most {} KiB",
            usage.rss_bytes >> 10,
            usage.rss_peak_bytes >> 10
        );
    }
}

/// A new version is tried at once, whatever the keys wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_repaired_version_does_not_wait_for_the_backoff() {
    let settings = "backoff: {baseMs: 60000, capMs: 3600000}";
    let (world, mut mounted) = neighbours("repair", settings).await;
    let host = start(&world, &mounted).await;
    for behaviour in ["trap", "loop", "garbage-json"] {
        put(&world, HOSTILE, behaviour, json!({"behaviour": behaviour})).await;
    }
    for (name, reason) in
        [("trap", "PluginTrapped"), ("loop", "LimitExceeded"), ("garbage-json", "OutcomeRefused")]
    {
        reconciled(&world, HOSTILE, name, reason).await;
    }
    // The same name and kind: its next version.
    let repaired = stamp("hostile", HOSTILE, "repaired");
    let swapped = Instant::now();
    mounted.show(&[("hostile.wasm", &repaired), ("hostile.yaml", settings.as_bytes())]);
    serves(&host, &[("hostile", "repaired")]).await;
    for name in ["trap", "loop", "garbage-json"] {
        shows(&world, name, &[("version", "repaired")]).await;
        reconciled(&world, HOSTILE, name, "Succeeded").await;
    }
    let took = swapped.elapsed();
    println!("from swap to repair: {took:?}");
    assert!(took < Duration::from_mins(1), "{took:?}: the keys waited for their backoff");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
