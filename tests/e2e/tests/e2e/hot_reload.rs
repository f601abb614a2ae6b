//! Plugins come, change and go while the host runs: from a directory as kubelet shows it, from plain files, and from
//! labelled ConfigMaps. Whatever cannot be loaded leaves what serves serving, and says why.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use pilothouse_e2e::loading::loaded_and_unloaded;
use pilothouse_guests::{Stamp, hostile_describing};
use pilothouse_harness::{Host, HostOptions, eventually};
use serde_json::json;

use crate::{
    mounted::Mounted,
    stamped::{
        LOAD_FAILURES, assert_ready, count, counts, generation, logs, put, reconciled, serves, shows, stamp,
        world, write,
    },
    support::{CONFIG_MAP, DEADLINE, EVENT, Kind, World, pilothouse, run},
};

const fn kind(kind: &'static str, plural: &'static str) -> Kind {
    Kind("test.pilothouse.dev/v1", kind, plural)
}

/// The options of a world's host, with another plugin directory.
fn options(world: &World, directory: &Mounted) -> HostOptions {
    HostOptions { plugins: vec![directory.path().to_owned()], ..world.options() }
}

/// Objects are edited without pause while twenty versions take over from one another, every other of which watches
/// more than the one before.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_versions_take_over_and_no_edit_is_lost() {
    const SWAP: Kind = kind("Swap", "swaps");
    const OBJECTS: usize = 20;
    const VERSIONS: u32 = 20;
    let version = |number: u32| {
        let version = number.to_string();
        Stamp { name: "swap", kind: "Swap", version: &version, wide: number.is_multiple_of(2) }.component()
    };
    let files = tempfile::tempdir().unwrap();
    // The rights of a wide version, which has more of them.
    let world = World::granted("swap", &[write(files.path(), "swap.wasm", version(2))]).await;
    let mut mounted = Mounted::new();
    mounted.show(&[("swap.wasm", &version(1))]);
    let host = Host::start(options(&world, &mounted)).await.unwrap();
    let process = host.process().unwrap();
    let name = |at: usize| format!("swap-{at}");
    for at in 0..OBJECTS {
        put(&world, SWAP, &name(at), json!({"text": "first"})).await;
    }
    let mut uids = BTreeMap::new();
    for at in 0..OBJECTS {
        shows(&world, &name(at), &[("text", "first"), ("version", "1")]).await;
        uids.insert(name(at), world.get(CONFIG_MAP, &name(at)).await.unwrap()["metadata"]["uid"].clone());
    }

    let world = Arc::new(world);
    let enough = Arc::new(AtomicBool::new(false));
    let editor = tokio::spawn({
        let (world, enough) = (Arc::clone(&world), Arc::clone(&enough));
        async move {
            let mut last = vec![String::new(); OBJECTS];
            let mut edits = 0;
            // Each object has been edited in the end, whenever that comes.
            while !enough.load(Ordering::Relaxed) || edits < OBJECTS {
                let text = format!("edit {edits}");
                put(&world, SWAP, &name(edits % OBJECTS), json!({"text": text})).await;
                last[edits % OBJECTS] = text;
                edits += 1;
            }
            last
        }
    });
    for number in 2..=VERSIONS {
        mounted.show(&[("swap.wasm", &version(number))]);
        let number = number.to_string();
        serves(&host, &[("swap", &number)]).await;
        // It does not only stand in a list.
        shows(&world, &name(0), &[("version", &number)]).await;
    }
    enough.store(true, Ordering::Relaxed);
    let last = editor.await.unwrap();

    for (at, text) in last.iter().enumerate() {
        shows(&world, &name(at), &[("text", text), ("version", &VERSIONS.to_string())]).await;
        let made = world.get(CONFIG_MAP, &name(at)).await.unwrap();
        assert_eq!(made["metadata"]["uid"], uids[&name(at)], "{} was made anew", name(at));
        reconciled(&world, SWAP, &name(at), "Succeeded").await;
    }
    assert_eq!(host.process(), Some(process), "the host was restarted");
    assert_eq!(count(&host, LOAD_FAILURES, &[]).await, 0);
    assert_ready(&host).await;
}

/// Everything that a plugin file can be but a plugin that may serve.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_loaded_leaves_the_old_version_serving_and_says_why() {
    const KEEP: Kind = kind("Keep", "keeps");
    const TAKEN: Kind = kind("Taken", "takens");
    let world = world("keep", &[("keep", KEEP), ("taken", TAKEN)]).await;
    let (good, other) = (stamp("keep", KEEP, "1"), stamp("taken", TAKEN, "1"));
    let mut mounted = Mounted::new();
    mounted.show(&[("keep.wasm", &good), ("taken.wasm", &other)]);
    let host = Host::start(options(&world, &mounted)).await.unwrap();
    put(&world, KEEP, "keep", json!({"text": "at first"})).await;
    shows(&world, "keep", &[("text", "at first")]).await;

    let half = &stamp("keep", KEEP, "2")[..good.len() / 2];
    let thief = stamp("keep", TAKEN, "2");
    let cases: [(&str, &[u8], &str, &str, &str); 10] = [
        ("half a file", half, "", "Incomplete", "within a section"),
        ("an empty file", b"", "", "Incomplete", "is empty"),
        ("no WebAssembly", b"<html>", "", "NotAPlugin", "is no WebAssembly binary"),
        ("a core module", b"\0asm\x01\0\0\0", "", "NotAComponent", "cargo component build"),
        ("a component of another world", b"\0asm\x0d\0\x01\0", "", "NotAPlugin", "does not export"),
        ("a wrong manifest", &hostile_describing("lies"), "", "ManifestInvalid", "manifest"),
        ("a trap in describe", &hostile_describing("traps"), "", "DescribeFailed", "trapped"),
        (
            "an endless describe",
            &hostile_describing("loops"),
            "limits: {cpuMs: 50}",
            "DescribeFailed",
            "50 ms of CPU time",
        ),
        ("a kind that another plugin serves", &thief, "", "KindTaken", "served by plugin `taken` already"),
        ("unknown settings", &good, "concurency: 2", "InvalidSettings", "concurency"),
    ];
    for (case, wasm, settings, reason, words) in cases {
        let before = count(&host, LOAD_FAILURES, &[("reason", reason)]).await;
        let mut files = vec![("keep.wasm", wasm), ("taken.wasm", other.as_slice())];
        if !settings.is_empty() {
            files.push(("keep.yaml", settings.as_bytes()));
        }
        mounted.show(&files);
        counts(&host, LOAD_FAILURES, &[("reason", reason)], before + 1).await;
        logs(&host, &[mounted.path().to_str().unwrap(), reason, words]).await;
        put(&world, KEEP, "keep", json!({"text": case})).await;
        shows(&world, "keep", &[("text", case), ("version", "1")]).await;
        serves(&host, &[("keep", "1"), ("taken", "1")]).await;
        assert_ready(&host).await;
    }
    mounted.show(&[("keep.wasm", &stamp("keep", KEEP, "3")), ("taken.wasm", &other)]);
    shows(&world, "keep", &[("version", "3")]).await;
}

/// A file that is written in place, slowly, is not taken for finished; and nothing else is said than that it is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_written_in_place_serves_when_it_is_whole() {
    const SLOW: Kind = kind("Slow", "slows");
    let world = world("slow", &[("slow", SLOW)]).await;
    let host = world.host().await;
    put(&world, SLOW, "slow", json!({"text": "a"})).await;
    shows(&world, "slow", &[("text", "a"), ("version", "1")]).await;

    let next = stamp("slow", SLOW, "2");
    let (half, rest) = next.split_at(next.len() / 2);
    let mut file = File::create(world.plugins.path().join("slow.wasm")).unwrap();
    file.write_all(half).unwrap();
    counts(&host, LOAD_FAILURES, &[("reason", "Incomplete")], 1).await;
    put(&world, SLOW, "slow", json!({"text": "b"})).await;
    shows(&world, "slow", &[("text", "b"), ("version", "1")]).await;
    file.write_all(rest).unwrap();
    drop(file);
    shows(&world, "slow", &[("text", "b"), ("version", "2")]).await;
    assert_eq!(count(&host, LOAD_FAILURES, &[]).await, 1, "{}", host.log());
}

/// No pass runs for a plugin that is gone or paused. A neighbour that serves an edit made later shows that the host
/// has had the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_or_paused_plugin_rests_and_catches_up_when_it_is_back() {
    const AWAY: Kind = kind("Away", "aways");
    const NEAR: Kind = kind("Near", "nears");
    let world = world("away", &[("away", AWAY), ("near", NEAR)]).await;
    let (away, near) = (stamp("away", AWAY, "1"), stamp("near", NEAR, "1"));
    let both: [(&str, &[u8]); 2] = [("away.wasm", &away), ("near.wasm", &near)];
    let paused = [both[0], both[1], ("away.yaml", b"mode: paused")];
    let mut mounted = Mounted::new();
    mounted.show(&both);
    let host = Host::start(options(&world, &mounted)).await.unwrap();

    for (round, files) in [&both[1..], &paused[..]].into_iter().enumerate() {
        let text = |when: &str| format!("{when} {round}");
        put(&world, AWAY, "away", json!({"text": text("before")})).await;
        shows(&world, "away", &[("text", &text("before"))]).await;
        let before = generation(&host, "away").await;
        mounted.show(files);
        eventually(DEADLINE, "another generation, or none", || async {
            generation(&host, "away").await != before
        })
        .await;
        put(&world, AWAY, "away", json!({"text": text("meanwhile")})).await;
        put(&world, NEAR, "near", json!({"text": text("meanwhile")})).await;
        shows(&world, "near", &[("text", &text("meanwhile"))]).await;
        let made = world.get(CONFIG_MAP, "away").await.unwrap();
        assert_eq!(made["data"]["text"], text("before"), "a pass ran in round {round}");
        assert_ready(&host).await;
        mounted.show(&both);
        shows(&world, "away", &[("text", &text("meanwhile"))]).await;
    }
}

/// `config` reaches the plugin, the backoff and the limits the host, without a new binary.
#[tokio::test(flavor = "multi_thread")]
async fn changed_settings_apply_at_once() {
    const TUNE: Kind = kind("Tune", "tunes");
    let world = world("tune", &[("tune", TUNE)]).await;
    let plugin = stamp("tune", TUNE, "1");
    let mut mounted = Mounted::new();
    mounted.show(&[("tune.wasm", &plugin)]);
    let _host = Host::start(options(&world, &mounted)).await.unwrap();
    put(&world, TUNE, "tune", json!({"text": "a"})).await;
    shows(&world, "tune", &[("config", "{}")]).await;

    mounted.show(&[("tune.wasm", &plugin), ("tune.yaml", b"config: {tier: gold}")]);
    shows(&world, "tune", &[("config", r#"{"tier":"gold"}"#)]).await;
    // So little that not even this plugin gets by with it.
    mounted
        .show(&[("tune.wasm", &plugin), ("tune.yaml", b"limits: {outputBytes: 1024}\nconfig: {tier: gold}")]);
    put(&world, TUNE, "tune", json!({"text": "x".repeat(2_000)})).await;
    let condition = reconciled(&world, TUNE, "tune", "LimitExceeded").await;
    assert!(condition["message"].as_str().unwrap().contains("output"), "{condition}");
    mounted.show(&[("tune.wasm", &plugin)]);
    shows(&world, "tune", &[("config", "{}")]).await;
    reconciled(&world, TUNE, "tune", "Succeeded").await;
}

/// As `pilothouse package` prints them and `kubectl apply --server-side` brings them.
#[tokio::test(flavor = "multi_thread")]
async fn labelled_config_maps_load_change_and_go() {
    const SHIP: Kind = kind("Ship", "ships");
    let world = world("ship", &[("ship", SHIP)]).await;
    let host = HostOptions {
        plugins: Vec::new(),
        plugin_config_maps: Some(world.namespace.clone()),
        ..world.options()
    };
    let host = Host::start(host).await.unwrap();
    let files = tempfile::tempdir().unwrap();
    let package = |version: &str, settings: &str| {
        let path = write(files.path(), "ship.wasm", stamp("ship", SHIP, version));
        write(files.path(), "ship.yaml", settings);
        deliver(&world, path)
    };
    package("1", "").await;
    put(&world, SHIP, "ship", json!({"text": "a"})).await;
    shows(&world, "ship", &[("text", "a"), ("version", "1"), ("config", "{}")]).await;
    package("2", "config: {tier: gold}").await;
    shows(&world, "ship", &[("text", "a"), ("version", "2"), ("config", r#"{"tier":"gold"}"#)]).await;

    // Broken: said in the log, a metric and an event on the ConfigMap, while the old version serves.
    let broken = json!({"binaryData": {"ship.wasm.zst": null, "ship.wasm": "PGh0bWw+"}});
    world.edit(CONFIG_MAP, "ship-plugin", &broken).await;
    counts(&host, LOAD_FAILURES, &[("reason", "NotAPlugin")], 1).await;
    let place = format!("ConfigMap {}/ship-plugin, key ship.wasm", world.namespace);
    logs(&host, &[&place, "NotAPlugin"]).await;
    let event = eventually(DEADLINE, "an event on the ConfigMap", || async {
        let events = world.list(EVENT).await;
        Ok(events.into_iter().find(|event| event["regarding"]["name"] == "ship-plugin"))
    });
    let event = event.await;
    assert_eq!((&event["reason"], &event["type"]), (&json!("PluginNotLoaded"), &json!("Warning")), "{event}");
    assert!(event["note"].as_str().unwrap().contains("is no WebAssembly binary"), "{event}");
    put(&world, SHIP, "ship", json!({"text": "b"})).await;
    shows(&world, "ship", &[("text", "b"), ("version", "2")]).await;

    world.edit(CONFIG_MAP, "ship-plugin", &json!({"binaryData": {"ship.wasm": null}})).await;
    package("3", "").await;
    shows(&world, "ship", &[("text", "b"), ("version", "3"), ("config", "{}")]).await;
    world.delete(CONFIG_MAP, "ship-plugin").await;
    serves(&host, &[]).await;
    assert_ready(&host).await;
    assert_eq!(count(&host, "pilothouse_plugin_loaded", &[]).await, 0);
}

async fn deliver(world: &World, plugin: PathBuf) {
    let plugin = plugin.to_str().unwrap();
    let arguments = ["package", plugin, "--configmap", "ship-plugin", "-n", &world.namespace];
    let packed = run(&pilothouse(), arguments).await;
    let applied = world.try_kubectl("apply --server-side --force-conflicts -f -", &packed).await;
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

/// With `--apply-crds` a new version brings its CRD along, as its first version did.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_brings_its_crd() {
    const BRING: Kind = kind("Bring", "brings");
    let plane = pilothouse_harness::ControlPlane::shared().await;
    let namespace = plane.namespace("bring").await.unwrap();
    let mut mounted = Mounted::new();
    mounted.show(&[("bring.wasm", &stamp("bring", BRING, "1"))]);
    // CRDs are an administrator's, so a host that applies them is one.
    let host = HostOptions {
        plugins: vec![mounted.path().to_owned()],
        apply_crds: true,
        namespaces: vec![namespace],
        ..HostOptions::new(plane.kubeconfig())
    };
    let host = Host::start(host).await.unwrap();
    let client = plane.client().await.unwrap();
    let crds = kube::Api::<kube::core::DynamicObject>::all_with(
        client,
        &kube::api::ApiResource {
            group: "apiextensions.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "apiextensions.k8s.io/v1".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
        },
    );
    let has_column = |column: &'static str| {
        let crds = &crds;
        eventually(DEADLINE, column, move || async move {
            let crd = crds.get("brings.test.pilothouse.dev").await?;
            anyhow::Ok(crd.data["spec"]["versions"][0]["additionalPrinterColumns"][0]["name"] == column)
        })
    };
    has_column("Version-1").await;
    mounted.show(&[("bring.wasm", &stamp("bring", BRING, "2"))]);
    serves(&host, &[("bring", "2")]).await;
    has_column("Version-2").await;
}

/// A hundred loads and unloads: no series, no watch, no file and no memory stays. `make test-faults` has a thousand.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_loads_and_unloads_leave_nothing_behind() {
    let memory = loaded_and_unloaded(100, 20).await;
    // The allocator is still filling its places.
    assert!(memory.end < memory.warm + (16 << 20), "{memory:?}");
}
