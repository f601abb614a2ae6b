//! The plugin `egapp`: an application from `kubectl apply` to its end, and what is refused at each level.

use pilothouse_harness::{Host, eventually};
use serde_json::{Value, json};

use crate::{
    lax::applied_without_rules,
    stamped::reconciled,
    support::{DEADLINE, DEPLOYMENT, EG_APP, POD, World, condition, plugin, sample},
};

const APP: &str = "storefront";

async fn running(prefix: &str) -> (World, Host) {
    let world = World::granted(prefix, &[plugin("egapp")]).await;
    let host = world.host().await;
    world.apply(&sample("egapp", "default", &world.namespace)).await;
    world.ready(EG_APP, APP).await;
    (world, host)
}

fn app(name: &str, spec: Value) -> String {
    let mut object = json!({"apiVersion": EG_APP.0, "kind": EG_APP.1, "metadata": {"name": name}});
    object["spec"] = json!({"framework": "go", "environment": "dev"});
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object.to_string()
}

/// Waits until the status names exactly the pods that there are, and says how many.
async fn pods_are(world: &World, count: usize) -> Vec<String> {
    eventually(DEADLINE, &format!("the status to name {count} pods"), || async {
        let there: Vec<Value> =
            world.list(POD).await.iter().map(|pod| pod["metadata"]["name"].clone()).collect();
        let named = world.get(EG_APP, APP).await.unwrap()["status"]["pods"].clone();
        anyhow::ensure!(
            there.len() == count && named == json!(there),
            "it names {named}, there are {there:?}"
        );
        Ok(Some(there.iter().map(|name| name.as_str().unwrap().to_owned()).collect()))
    })
    .await
}

#[tokio::test]
async fn an_application_is_a_deployment_and_its_status_names_the_pods() {
    let (world, _host) = running("egapp").await;
    world.kubectl("wait --for=condition=Ready --timeout=120s egapp/storefront").await;
    let made = world.get(DEPLOYMENT, APP).await.unwrap();
    assert_eq!(
        made["spec"]["selector"],
        json!({"matchLabels": {"app.kubernetes.io/name": "egapp", "app.kubernetes.io/instance": APP}})
    );
    assert_eq!(made["metadata"]["labels"]["team"], "web");
    let container = &made["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["name"], &container["image"]),
        (&json!(APP), &json!("gcr.io/kuar-demo/kuard-amd64:1"))
    );
    assert_eq!(container["ports"], json!([{"name": "http", "containerPort": 8080, "protocol": "TCP"}]));
    let before = pods_are(&world, 2).await;

    let table = world.kubectl("get egapps").await;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "FRAMEWORK", "ENVIRONMENT", "REPLICAS", "READY", "AGE"]);
    assert_eq!(rows[1][..5], [APP, "go", "dev", "2", "2"]);

    // A pod that somebody gave the labels is not the application's; a pod that goes is replaced.
    let labels = made["spec"]["selector"]["matchLabels"].clone();
    let stray = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-stray", "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.create(POD, &stray).await;
    world.delete(POD, &before[0]).await;
    eventually(DEADLINE, "the status to name the new pod", || async {
        let app = world.get(EG_APP, APP).await.unwrap();
        let named = app["status"]["pods"].as_array().unwrap().clone();
        assert!(!named.contains(&json!("a-stray")), "{named:?}");
        anyhow::ensure!(named.len() == 2 && !named.contains(&json!(before[0])), "it names {named:?}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn scaling_by_kubectl_and_down_to_nothing() {
    let (world, _host) = running("egapp-scale").await;
    world.kubectl("scale egapp storefront --replicas=3").await;
    pods_are(&world, 3).await;
    world.ready(EG_APP, APP).await;
    let scale = world.kubectl("get egapp storefront --subresource=scale -o json").await;
    let scale: Value = serde_json::from_str(&scale).unwrap();
    assert_eq!(scale["status"]["replicas"], 3);
    assert_eq!(
        scale["status"]["selector"],
        format!("app.kubernetes.io/name=egapp,app.kubernetes.io/instance={APP}")
    );

    world.kubectl("scale egapp storefront --replicas=0").await;
    pods_are(&world, 0).await;
    let app = world.ready(EG_APP, APP).await;
    assert_eq!(app["status"]["pods"], json!([]));
    let asked = world.kubectl("get egapp storefront -o jsonpath={.status.pods}").await;
    assert_eq!(asked, "[]");
}

#[tokio::test]
async fn drift_is_put_back_and_edits_follow() {
    let (world, _host) = running("egapp-drift").await;
    let before = world.get(DEPLOYMENT, APP).await.unwrap();
    let spec = |object: &Value| (object["spec"].clone(), object["metadata"]["labels"].clone());
    for edit in [
        json!({"spec": {"replicas": 5}}),
        json!({"spec": {"template": {"metadata": {"labels": {"team": "drift"}}}}}),
        json!({"metadata": {"labels": {"team": null}}}),
        // By JSON merge patch: the container is another one.
        json!({"spec": {"template": {"spec": {"containers": [{"name": "mine", "image": "mine"}]}}}}),
    ] {
        world.edit(DEPLOYMENT, APP, &edit).await;
        eventually(DEADLINE, &format!("{edit} to be put back"), || async {
            let now = world.get(DEPLOYMENT, APP).await.unwrap();
            let containers = now["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone();
            let ours = containers.iter().any(|container| container["name"] == APP);
            // A container that somebody adds is not the plugin's to remove.
            let right = if containers.len() == 1 { spec(&now) == spec(&before) } else { ours };
            anyhow::ensure!(right, "it is {now}");
            Ok(())
        })
        .await;
        if edit["spec"]["template"]["spec"].is_object() {
            world.delete(DEPLOYMENT, APP).await;
        }
    }
    let made = eventually(DEADLINE, "a new Deployment", || async {
        let now = world.get(DEPLOYMENT, APP).await.unwrap_or_default();
        anyhow::ensure!(
            now["metadata"]["uid"].is_string() && now["metadata"]["uid"] != before["metadata"]["uid"]
        );
        Ok(Some(now))
    })
    .await;
    assert_eq!(spec(&made).0["selector"], spec(&before).0["selector"]);
    world.ready(EG_APP, APP).await;

    world.kubectl("label egapp storefront team=shop tier=front --overwrite").await;
    world
        .edit(
            EG_APP,
            APP,
            &json!({"spec": {"image": "registry.example.com/web:2", "instanceType": "highCPU"}}),
        )
        .await;
    eventually(DEADLINE, "the Deployment to follow", || async {
        let now = world.get(DEPLOYMENT, APP).await.unwrap();
        assert_eq!(now["spec"]["selector"], before["spec"]["selector"]);
        let labels = &now["metadata"]["labels"];
        let container = &now["spec"]["template"]["spec"]["containers"][0];
        anyhow::ensure!(
            labels["team"] == "shop"
                && labels["tier"] == "front"
                && container["image"] == "registry.example.com/web:2"
                && container["resources"]["requests"] == json!({"cpu": "1", "memory": "256Mi"}),
            "it is {now}"
        );
        Ok(())
    })
    .await;
    world.ready(EG_APP, APP).await;
}

#[tokio::test]
async fn an_application_that_is_deleted_takes_everything_with_it() {
    let (world, _host) = running("egapp-delete").await;
    world.kubectl("delete egapp storefront --timeout=120s").await;
    world.gone(EG_APP, APP).await;
    world.gone(DEPLOYMENT, APP).await;
    eventually(DEADLINE, "the pods to go", || async { Ok(world.list(POD).await.is_empty()) }).await;
}

/// First by the schema; then, where the schema has no rules, by the pass. One test, as it takes the rules away.
#[tokio::test]
async fn what_is_wrong_is_refused_at_each_level_by_field() {
    let (world, _host) = running("egapp-invalid").await;
    let refused = |input: String| {
        let world = &world;
        async move {
            let output = world.try_kubectl("apply -f -", &input).await;
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        }
    };
    for (change, field) in [
        (json!({"framework": "rust"}), "spec.framework: Unsupported value: \"rust\""),
        (json!({"framework": null}), "spec.framework: Required value"),
        (json!({"environment": "test"}), "spec.environment: Unsupported value"),
        (json!({"instanceType": "huge"}), "spec.instanceType: Unsupported value"),
        (json!({"replicaCount": -1}), "spec.replicaCount: Invalid value"),
        (json!({"appId": "Web_1"}), "spec.appId: Invalid value"),
        (json!({"appId": "a".repeat(64)}), "spec.appId: Too long"),
    ] {
        // A rule that another test has just brought back may be a moment away.
        eventually(DEADLINE, &format!("{change} to be refused"), || async {
            let (taken, said) = refused(app("wrong", change.clone())).await;
            if taken {
                world.delete(EG_APP, "wrong").await;
            }
            anyhow::ensure!(!taken && said.contains(field), "{said}");
            Ok(())
        })
        .await;
    }
    let (taken, said) = refused(app("web.shop", json!({}))).await;
    assert!(!taken && said.contains("metadata.name"), "{said}");
    for (change, field) in
        [(json!({"framework": "java"}), "spec.framework"), (json!({"appId": "other"}), "spec.appId")]
    {
        let (taken, said) = refused(app(APP, change)).await;
        assert!(!taken && said.contains(field) && said.contains("cannot change: create"), "{said}");
    }
    // To say what was meant is no change, nor is to leave it out again.
    for spec in [json!({"appId": APP}), json!({})] {
        let (taken, said) = refused(app(APP, spec)).await;
        assert!(taken, "{said}");
    }
    world.ready(EG_APP, APP).await;

    applied_without_rules(&world, "egapp", &app("wrong", json!({"appId": "Web_1"}))).await;
    let said = reconciled(&world, EG_APP, "wrong", "InvalidResource").await;
    assert!(said["message"].as_str().unwrap().starts_with("spec.appId: use at most 63 lower case"), "{said}");
    let ready = condition(&world.get(EG_APP, "wrong").await.unwrap(), "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("InvalidSpec")));
    assert_eq!(world.get(DEPLOYMENT, "wrong").await, None);
    applied_without_rules(&world, "egapp", &app("typo", json!({"framework": "rust"}))).await;
    let said = reconciled(&world, EG_APP, "typo", "InvalidResource").await;
    assert!(
        said["message"].as_str().unwrap().starts_with("spec.framework: unknown variant `rust`"),
        "{said}"
    );

    let before = world.get(DEPLOYMENT, APP).await.unwrap();
    applied_without_rules(&world, "egapp", &app(APP, json!({"framework": "java", "replicaCount": 7}))).await;
    let said = reconciled(&world, EG_APP, APP, "InvalidResource").await;
    assert!(said["message"].as_str().unwrap().starts_with("spec.framework: cannot change"), "{said}");
    assert_eq!(world.get(DEPLOYMENT, APP).await.unwrap()["spec"], before["spec"]);
}
