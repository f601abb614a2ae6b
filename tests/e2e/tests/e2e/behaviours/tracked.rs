//! Children that the garbage collector does not take, and those that it is told to leave.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use pilothouse_harness::{Host, HostOptions, eventually};
use serde_json::{Value, json};

use crate::{
    scripted::{SCRIPTED, comes_to, config_map, config_maps_only, perform, scripted, world},
    stamped::{logs, serves, write},
    support::{CONFIG_MAP, DEADLINE, World},
};

const GRANTS: &str = "grants: [{kind: PriorityClass.scheduling.k8s.io}]";

/// A manifest with a cluster-scoped child of a namespaced primary.
fn manifest(finalizer: &Value) -> Value {
    let class = json!({"resource": {"group": "scheduling.k8s.io", "version": "v1", "kind": "PriorityClass",
        "plural": "priorityclasses", "scope": "Cluster"}});
    json!({"controller": {"children": [class], "finalizer": finalizer}})
}

/// A world for that plugin, with what its manifest wants granted.
async fn granted(prefix: &str, finalizer: &Value) -> World {
    let world = world(prefix, &manifest(finalizer)).await;
    write(world.plugins.path(), "scripted.yaml", GRANTS);
    world
}

/// A PriorityClass of a name that no other test has.
fn class(world: &World, name: &str) -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1,
        "metadata": {"name": format!("{}-{name}", world.namespace)}})
}

/// The PriorityClasses of the test.
async fn classes(world: &World) -> Vec<Value> {
    let listed = world.kubectl("get priorityclasses -o json").await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let mut items = listed["items"].as_array().unwrap().clone();
    items.retain(|item| item["metadata"]["name"].as_str().unwrap().starts_with(&world.namespace));
    items
}

async fn no_class_is_left(world: &World) {
    eventually(DEADLINE, "the cluster-scoped children to be gone", || async {
        let left = classes(world).await;
        anyhow::ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await;
}

/// CR#675, K8s#65200: refused at the door with the line that would help; with it, tied by label, and cleaned up by the
/// host: also if the primary was deleted while it was down.
#[tokio::test(flavor = "multi_thread")]
async fn cr_675_a_cluster_scoped_child_needs_a_grant_and_goes_with_its_primary() {
    let world = world("cluster-child", &manifest(&Value::Null)).await;
    let host = world.host().await;
    let remedy = "add `- {kind: PriorityClass.scheduling.k8s.io}` to `grants`";
    logs(
        &host,
        &["plugin not loaded", "controllers[0].children[0] of the manifest wants PriorityClass", remedy],
    )
    .await;
    serves(&host, &[]).await;
    write(world.plugins.path(), "scripted.yaml", GRANTS);

    perform(&world, "a", json!({"children": [class(&world, "a"), class(&world, "b")]})).await;
    comes_to(&world, "a", "Succeeded").await;
    let primary = world.get(SCRIPTED, "a").await.unwrap();
    assert_eq!(primary["metadata"]["finalizers"], json!(["pilothouse.dev/cleanup"]));
    for class in classes(&world).await {
        assert_eq!(class["metadata"].get("ownerReferences"), None);
        assert_eq!(class["metadata"]["labels"]["pilothouse.dev/owner-uid"], primary["metadata"]["uid"]);
    }
    // One that a user deletes is missed at once, though no owner reference says whose it was.
    world.kubectl(&format!("delete priorityclass {}-b", world.namespace)).await;
    eventually(DEADLINE, "the child to be made again", || async { Ok(classes(&world).await.len() == 2) })
        .await;

    host.kill_9().unwrap();
    world.kubectl("delete scripted a --wait=false").await;
    assert!(world.get(SCRIPTED, "a").await.is_some(), "the finalizer holds it");
    host.restart().await.unwrap();
    world.gone(SCRIPTED, "a").await;
    assert_eq!(classes(&world).await, Vec::<Value>::new(), "gone before their primary");
}

/// CR#675: a child that the cache does not show goes as well: a host that was here before made it a moment ago, its watch
/// has gone silent, or the plugin had another name.
#[tokio::test(flavor = "multi_thread")]
async fn cr_675_a_child_that_no_event_told_of_goes_with_its_primary() {
    let world = granted("silent", &Value::Null).await;
    let server = world.plane.fault_server().await.unwrap();
    let options = HostOptions { kubeconfig: server.kubeconfig().to_owned(), ..world.options() };
    let _host = Host::start(options).await.unwrap();
    perform(&world, "a", json!({"children": [class(&world, "a")]})).await;
    comes_to(&world, "a", "Succeeded").await;
    assert_ne!(server.hush(|asked| asked.is_watch_of("priorityclasses")), 0);

    let unseen = format!("{}-b", world.namespace);
    let primary = world.get(SCRIPTED, "a").await.unwrap();
    let uid = primary["metadata"]["uid"].as_str().unwrap();
    let owner = format!("Scripted.test.pilothouse.dev/{}/a", world.namespace);
    world.kubectl(&format!("create priorityclass {unseen} --value=1")).await;
    world.kubectl(&format!("annotate priorityclass {unseen} pilothouse.dev/owner={owner}")).await;
    let labels = format!("pilothouse.dev/managed=former pilothouse.dev/owner-uid={uid}");
    world.kubectl(&format!("label priorityclass {unseen} {labels}")).await;

    world.kubectl("delete scripted a --wait=false").await;
    world.gone(SCRIPTED, "a").await;
    assert_eq!(classes(&world).await, Vec::<Value>::new(), "gone before their primary");
}

/// CR#675: a child in another namespace is put back by its own events, and goes with its primary. One of the same name
/// that is not ours is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn cr_675_a_child_in_another_namespace_is_put_back_and_goes_with_its_primary() {
    let mut manifest = json!({"controller": config_maps_only()});
    manifest["controller"]["children"][0]["namespaces"] = json!("any");
    manifest["controller"]["finalizer"] = Value::Null;
    let world = world("far", &manifest).await;
    let far = world.plane.namespace("far-away").await.unwrap();
    write(
        world.plugins.path(),
        "scripted.yaml",
        format!("grants: [{{kind: ConfigMap, namespaces: [{far}]}}]"),
    );
    // The account has rights in the test's own namespace alone.
    let options = HostOptions {
        kubeconfig: world.plane.kubeconfig().to_owned(),
        namespaces: vec![world.namespace.clone(), far.clone()],
        ..world.options()
    };
    let _host = Host::start(options).await.unwrap();
    let there = CONFIG_MAP.api(&world.client, &far);
    let foreign = serde_json::from_value(config_map("theirs", "theirs")).unwrap();
    there.create(&PostParams::default(), &foreign).await.unwrap();
    let child = |name: &str| {
        let mut child = config_map(name, "v");
        child["metadata"]["namespace"] = json!(far);
        child
    };
    let text =
        async |name: &str| there.get_opt(name).await.unwrap().map(|found| found.data["data"]["k"].clone());
    perform(&world, "a", json!({"children": [child("theirs"), child("ours")]})).await;
    let message = comes_to(&world, "a", "WriteFailed").await;
    assert!(message.contains("NotOwned") && message.contains("theirs exists"), "{message}");
    assert_eq!((text("theirs").await, text("ours").await), (Some(json!("theirs")), Some(json!("v"))));

    let edit = Patch::Merge(json!({"data": {"k": "x"}}));
    there.patch("ours", &PatchParams::default(), &edit).await.unwrap();
    eventually(DEADLINE, "the edit to be reverted", || async { Ok(text("ours").await == Some(json!("v"))) })
        .await;
    there.delete("ours", &DeleteParams::default()).await.unwrap();
    eventually(DEADLINE, "the child to be made again", || async { Ok(text("ours").await.is_some()) }).await;

    world.kubectl("delete scripted a").await;
    assert_eq!((text("theirs").await, text("ours").await), (Some(json!("theirs")), None));
}

/// The plugin's own finalizer does as well, and waits for children that wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_waits_until_its_tracked_children_are_gone_and_says_so() {
    let world = granted("cluster-wait", &json!("test.pilothouse.dev/scripted")).await;
    let _host = world.host().await;
    let mut held = class(&world, "held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    perform(&world, "a", json!({"children": [held, class(&world, "free")]})).await;
    comes_to(&world, "a", "Succeeded").await;
    world.delete(SCRIPTED, "a").await;
    let message = comes_to(&world, "a", "CleaningUp").await;
    assert!(message.contains(&format!("{}-held is being deleted", world.namespace)), "{message}");
    let patch = json!({"metadata": {"finalizers": null}});
    world.kubectl(&format!("patch priorityclass {}-held --type=merge -p {patch}", world.namespace)).await;
    world.gone(SCRIPTED, "a").await;
    no_class_is_left(&world).await;
}

/// A crash at any moment leaves nothing that nobody would clean up: the finalizer is there before the first child.
#[tokio::test(flavor = "multi_thread")]
async fn kills_while_children_are_made_leave_none_behind() {
    let world = granted("cluster-kills", &Value::Null).await;
    let host = world.host().await;
    for round in 0..4 {
        for at in 0..5 {
            let name = format!("a-{round}-{at}");
            perform(&world, &name, json!({"children": [class(&world, &name)]})).await;
        }
        host.kill_9().unwrap();
        world.kubectl("delete scripteds --all --wait=false").await;
        host.restart().await.unwrap();
    }
    eventually(DEADLINE, "the primaries to be gone", || async { Ok(world.list(SCRIPTED).await.is_empty()) })
        .await;
    no_class_is_left(&world).await;
}

/// `kubectl delete --cascade=orphan` leaves the children, and whoever bears the name next takes them up again.
#[tokio::test(flavor = "multi_thread")]
async fn orphans_stay_and_are_adopted_when_they_are_wanted_again() {
    let mut manifest = json!({"controller": config_maps_only()});
    manifest["controller"]["finalizer"] = Value::Null;
    let world = world("orphans", &manifest).await;
    let _host = world.host().await;
    let children = json!({"children": [config_map("a", "v"), config_map("b", "v")]});
    perform(&world, "old", children).await;
    comes_to(&world, "old", "Succeeded").await;
    let before = world.get(CONFIG_MAP, "a").await.unwrap();
    world.kubectl("delete scripted old --cascade=orphan").await;
    world.gone(SCRIPTED, "old").await;
    for name in ["a", "b"] {
        let orphan = world.get(CONFIG_MAP, name).await.unwrap();
        assert_eq!(orphan["metadata"].get("ownerReferences"), None, "{orphan}");
    }
    // One is wanted again, the other is left alone: nobody says any more that it goes.
    perform(&world, "new", json!({"children": [config_map("a", "w")]})).await;
    comes_to(&world, "new", "Succeeded").await;
    let after = world.get(CONFIG_MAP, "a").await.unwrap();
    assert_eq!((&after["metadata"]["uid"], &after["data"]["k"]), (&before["metadata"]["uid"], &json!("w")));
    assert_eq!(after["metadata"]["ownerReferences"][0]["name"], "new");
    world.kubectl("delete scripted new").await;
    world.gone(CONFIG_MAP, "a").await;
    assert!(world.get(CONFIG_MAP, "b").await.is_some());

    // An owner reference that a user takes off is put back.
    perform(&world, "new", json!({"children": [config_map("c", "v")]})).await;
    comes_to(&world, "new", "Succeeded").await;
    world.edit(CONFIG_MAP, "c", &json!({"metadata": {"ownerReferences": null}})).await;
    eventually(DEADLINE, "the child to be adopted again", || async {
        let child = world.get(CONFIG_MAP, "c").await.unwrap();
        Ok(child["metadata"]["ownerReferences"][0]["name"] == "new")
    })
    .await;
}

/// A new version of the plugin that wants more than is granted leaves the old one serving.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_wants_more_than_is_granted_leaves_the_old_one_serving() {
    let world = world("ungranted", &json!({"controller": config_maps_only()})).await;
    let host = world.host().await;
    perform(&world, "a", json!({"children": [config_map("a", "v")]})).await;
    comes_to(&world, "a", "Succeeded").await;
    let mut wide = config_maps_only();
    wide["children"][0]["namespaces"] = json!("any");
    write(world.plugins.path(), "scripted.wasm", scripted("2", &json!({"controller": wide})));
    logs(&host, &["plugin not loaded", "add `- {kind: ConfigMap, namespaces: [NAME, ...]}` to `grants`"])
        .await;
    perform(&world, "a", json!({"children": [config_map("a", "w")]})).await;
    comes_to(&world, "a", "Succeeded").await;
    assert_eq!(world.get(CONFIG_MAP, "a").await.unwrap()["data"]["k"], "w");
}
