//! What others change of ours is put back; what is theirs stays.

use pilothouse_model::action::RejectReason;
use serde_json::{Value, json};

use crate::world::{World, apply, config_map, message, none, patch, pod_template, short};

#[tokio::test]
async fn mc_1177_edits_are_reverted_whether_or_not_the_kind_has_a_generation() {
    let mut world = World::new("drift").await;
    let hpa = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"}}
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a", "labels": {"app": "a"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    });
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "automountServiceAccountToken": false});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"user": "app"}});
    let cases: [(Value, Value, &str); 6] = [
        (config_map("a", &json!({"k": "v"})), json!({"data": {"k": "x"}}), "/data/k"),
        (secret, json!({"stringData": {"user": "x"}}), "/data/user"),
        (service, json!({"spec": {"selector": {"app": "x"}}}), "/spec/selector/app"),
        (account, json!({"automountServiceAccountToken": true}), "/automountServiceAccountToken"),
        (hpa, json!({"spec": {"maxReplicas": 9}}), "/spec/maxReplicas"),
        (claim, json!({"metadata": {"labels": {"app": "x"}}}), "/metadata/labels/app"),
    ];
    for restart in [false, true] {
        for (object, edit, path) in &cases {
            let kind = object["kind"].as_str().unwrap();
            world.pass(vec![apply(object)]).await;
            let right = world.get(kind, "a").await.unwrap().pointer(path).cloned();
            assert_ne!(world.edit(kind, "a", edit).await.pointer(path).cloned(), right, "{kind}");
            if restart {
                world.restart();
            }
            let before = world.spent();
            assert_eq!(short(&world.pass(vec![apply(object)]).await), ["Written"], "{kind}");
            assert_eq!(world.spent_since(&before)["apply"], 1, "{kind}");
            assert_eq!(world.get(kind, "a").await.unwrap().pointer(path).cloned(), right, "{kind}");
            let before = world.spent();
            assert_eq!(short(&world.pass(vec![apply(object)]).await), ["NoOp"], "{kind}");
            assert_eq!(world.spent_since(&before), none(), "{kind}");
        }
    }
}

#[tokio::test]
async fn fields_of_others_stay_and_cost_nothing() {
    let world = World::new("drift").await;
    let object = config_map("a", &json!({"ours": "1"}));
    world.pass(vec![apply(&object)]).await;
    world
        .edit("ConfigMap", "a", &json!({"data": {"theirs": "2"}, "metadata": {"annotations": {"x": "y"}}}))
        .await;
    let before = world.spent();
    assert_eq!(short(&world.pass(vec![apply(&object)]).await), ["NoOp"]);
    assert_eq!(world.spent_since(&before), none());
    assert_eq!(world.get("ConfigMap", "a").await.unwrap()["data"], json!({"ours": "1", "theirs": "2"}));
}

#[tokio::test]
async fn llmkube_484_replicas_of_an_autoscaler_are_never_touched() {
    let mut world = World::new("drift").await;
    let deployment = |image: &str| {
        let mut template = pod_template("a");
        template["spec"]["containers"][0]["image"] = json!(image);
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}
        })
    };
    world.pass(vec![apply(&deployment("one"))]).await;
    world.edit_subresource("Deployment", "a", "scale", &json!({"spec": {"replicas": 5}})).await;
    for restart in [false, true] {
        if restart {
            world.restart();
        }
        let writes = world.writer.counters().writes();
        assert_eq!(short(&world.pass(vec![apply(&deployment("one"))]).await), ["NoOp"]);
        assert_eq!(world.writer.counters().writes(), writes);
    }
    assert_eq!(short(&world.pass(vec![apply(&deployment("two"))]).await), ["Written"]);
    let live = world.get("Deployment", "a").await.unwrap();
    assert_eq!(live["spec"]["replicas"], 5);
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["image"], "two");
}

#[tokio::test]
async fn an_item_whose_key_somebody_changed_is_put_back() {
    let mut world = World::new("drift").await;
    let service = |port: u16| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {
                "type": "NodePort", "selector": {"app": "a"},
                "ports": [{"name": "pg", "port": port, "protocol": "TCP", "targetPort": "pg"}]
            }
        })
    };
    let ports = async |world: &World| world.get("Service", "a").await.unwrap()["spec"]["ports"].clone();
    world.pass(vec![apply(&service(5432))]).await;
    let before = ports(&world).await;
    for restart in [false, true] {
        if restart {
            world.restart();
        }
        let mut changed = before.clone();
        changed[0]["port"] = json!(6432);
        world.edit("Service", "a", &json!({"spec": {"ports": changed}})).await;
        assert_eq!(short(&world.pass(vec![apply(&service(5432))]).await), ["Written"]);
        assert_eq!(ports(&world).await, before, "after a restart: {restart}");
        assert_eq!(short(&world.pass(vec![apply(&service(5432))]).await), ["NoOp"]);
    }
    // It is ours as before: it goes when it is left out.
    world.pass(vec![apply(&service(7432))]).await;
    let after = ports(&world).await;
    assert_eq!((after.as_array().unwrap().len(), &after[0]["port"]), (1, &json!(7432)), "{after}");

    // A plugin that takes nothing from others leaves the decision to people.
    world.declare("forceConflicts", &json!(false));
    world.edit("Service", "a", &json!({"spec": {"ports": [{"name": "pg", "port": 6432}]}})).await;
    let report = world.pass(vec![apply(&service(7432))]).await;
    let (reason, text) = message(&report);
    assert!(reason == RejectReason::Invalid && text.contains("spec.ports[1].name"), "{text}");
}

#[tokio::test]
async fn a_field_that_is_left_out_vanishes() {
    let mut world = World::new("drift").await;
    world.pass(vec![apply(&config_map("a", &json!({"k": "v", "old": "v"})))]).await;
    world.pass(vec![apply(&config_map("a", &json!({"k": "v"})))]).await;
    assert_eq!(world.get("ConfigMap", "a").await.unwrap()["data"], json!({"k": "v"}));
    // Also when the field was left out while the host was down.
    world.restart();
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"a": "1", "b": "2"}});
    world.pass(vec![apply(&secret)]).await;
    world.restart();
    secret["stringData"] = json!({"a": "1"});
    assert_eq!(short(&world.pass(vec![apply(&secret)]).await), ["Written"]);
    assert_eq!(world.get("Secret", "a").await.unwrap()["data"], json!({"a": "MQ=="}));
}

#[tokio::test]
async fn a_conflict_is_reported_with_manager_and_field_and_others_go_on() {
    let mut world = World::new("drift").await;
    world.declare("forceConflicts", &json!(false));
    world.pass(vec![apply(&config_map("a", &json!({"k": "v"})))]).await;
    world.edit("ConfigMap", "a", &json!({"data": {"k": "theirs"}})).await;
    let report = world
        .pass(vec![apply(&config_map("a", &json!({"k": "v"}))), apply(&config_map("b", &json!({"k": "v"})))])
        .await;
    assert_eq!(short(&report), ["Conflict", "Written"]);
    let (_, message) = message(&report);
    assert!(message.contains(".data.k") && message.contains("kubectl-edit"), "{message}");
    assert_eq!(world.get("ConfigMap", "a").await.unwrap()["data"]["k"], "theirs");
}

#[tokio::test]
async fn k8s_113482_what_the_schema_refuses_is_terminal_and_names_the_path() {
    let world = World::new("drift").await;
    let deployment = |container: Value| {
        let mut template = pod_template("a");
        template["spec"]["containers"][0]
            .as_object_mut()
            .unwrap()
            .extend(container.as_object().unwrap().clone());
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template}
        })
    };
    for (container, part) in [
        (json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}), "env"),
        (json!({"ports": [{"containerPort": 80}, {"containerPort": 80}]}), "ports"),
        (json!({"imagee": "x"}), "imagee"),
        (json!({"imagePullPolicy": "Sometimes"}), "imagePullPolicy"),
        (json!({"ports": "80"}), "ports"),
    ] {
        let report = world.pass(vec![apply(&deployment(container))]).await;
        let (reason, message) = message(&report);
        assert_eq!(reason, RejectReason::Invalid, "{message}");
        assert!(!reason.is_transient() && message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn mc_1139_large_objects_are_applied_up_to_the_limit_and_terminal_above() {
    let world = World::new("drift").await;
    for (share, expected) in
        [(30, "Written"), (60, "Written"), (99, "Written"), (101, "TooLarge"), (150, "TooLarge")]
    {
        let text = "x".repeat((1 << 20) / 100 * share);
        let object = config_map(&format!("a{share}"), &json!({"k": text}));
        let report = world.pass_on(vec![apply(&object)], &[]).await;
        assert_eq!(short(&report), [expected], "{share} %");
        assert!(report.rejected().all(|rejected| !rejected.reason.is_transient()));
    }
    let huge = config_map("huge", &json!({"k": "x".repeat(4 << 20)}));
    let before = world.spent();
    assert_eq!(short(&world.pass_on(vec![apply(&huge)], &[]).await), ["TooLarge"]);
    assert_eq!(world.spent_since(&before), [("get", 1)].into(), "not sent at all");
}

#[tokio::test]
async fn targets_are_patched_only_where_they_differ() {
    let world = World::new("drift").await;
    world.create(&config_map("theirs", &json!({"k": "v"}))).await;
    let labelled = || patch("ConfigMap", "theirs", &json!({"metadata": {"labels": {"a": "b"}}}), &json!({}));
    assert_eq!(short(&world.pass(vec![labelled()]).await), ["Written"]);
    let before = world.spent();
    assert_eq!(short(&world.pass(vec![labelled()]).await), ["NoOp"]);
    assert_eq!(world.spent_since(&before), [("get", 1)].into());
    let missing = patch("ConfigMap", "nobody", &json!({"metadata": {"labels": {"a": "b"}}}), &json!({}));
    assert_eq!(short(&world.pass(vec![missing]).await), ["Gone"]);

    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "theirs"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": pod_template("a")}
    });
    world.create(&deployment).await;
    let scaled =
        || patch("Deployment", "theirs", &json!({"spec": {"replicas": 2}}), &json!({"subresource": "scale"}));
    assert_eq!(short(&world.pass(vec![scaled()]).await), ["Written"]);
    assert_eq!(short(&world.pass(vec![scaled()]).await), ["NoOp"]);
    assert_eq!(world.get("Deployment", "theirs").await.unwrap()["spec"]["replicas"], 2);
}
