//! After convergence nothing is written, whatever the API server fills in, drops or normalises; not even by a host
//! that has just started and remembers nothing.

use serde_json::{Value, json};

use crate::world::{World, apply, none, pod_template, short};

/// Applies `object` until it is there, then looks at it again with and without memory. Returns the dry runs that the
/// look without memory took.
async fn converges(world: &mut World, object: &Value) -> u64 {
    let kind = object["kind"].as_str().unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    let before = world.spent();
    let report = world.pass(vec![apply(object)]).await;
    assert_eq!(short(&report), ["Written"], "{kind}: {report:?}");
    // One look whether somebody else has the name, one apply.
    assert_eq!(world.spent_since(&before), [("apply", 1), ("get", 1)].into(), "{kind}");

    let at_rest = world.get(kind, name).await.unwrap();
    let before = world.spent();
    for _ in 0..5 {
        assert_eq!(short(&world.pass(vec![apply(object)]).await), ["NoOp"], "{kind}");
    }
    assert_eq!(world.spent_since(&before), none(), "{kind}: a pass at rest sends nothing");

    world.restart();
    let writes = world.writer.counters().writes();
    assert_eq!(short(&world.pass(vec![apply(object)]).await), ["NoOp"], "{kind}: after a restart");
    assert_eq!(world.writer.counters().writes(), writes, "{kind}: a restart writes nothing");
    let asked = world.spent_since(&before).get("dry-run").copied().unwrap_or(0);
    assert!(asked <= 1, "{kind}: {asked} dry runs");

    let before = world.spent();
    assert_eq!(short(&world.pass(vec![apply(object)]).await), ["NoOp"], "{kind}");
    assert_eq!(world.spent_since(&before), none(), "{kind}: what was asked is remembered");

    let later = world.get(kind, name).await.unwrap();
    assert_eq!(ours(&later), ours(&at_rest), "{kind}");
    if at_rest.get("status").is_none() {
        // No controller writes to it.
        assert_eq!(later["metadata"]["resourceVersion"], at_rest["metadata"]["resourceVersion"], "{kind}");
    }
    asked
}

/// Our entry in managedFields, with the time of its last change.
fn ours(object: &Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().find(|entry| entry["manager"] == "pilothouse-web").unwrap().clone()
}

#[tokio::test]
async fn mc_281_an_empty_env_value_is_written_once() {
    let mut world = World::new("quiet").await;
    let mut template = pod_template("a");
    template["spec"]["containers"][0]["env"] =
        json!([{"name": "EMPTY", "value": ""}, {"name": "FULL", "value": "x"}]);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    });
    assert_eq!(converges(&mut world, &deployment).await, 0, "our own entry tells");
}

#[tokio::test]
async fn mc_443_a_defaulted_field_ref_version_does_not_recreate() {
    let mut world = World::new("quiet").await;
    let mut template = pod_template("a");
    template["spec"]["containers"][0]["env"] =
        json!([{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    });
    assert_eq!(
        converges(&mut world, &deployment).await,
        1,
        "a default inside an atomic map: only the server can tell"
    );
}

#[tokio::test]
async fn openclaw_403_defaults_in_a_statefulset_and_its_probes_are_quiet() {
    let mut world = World::new("quiet").await;
    let mut template = pod_template("a");
    let container = &mut template["spec"]["containers"][0];
    container["ports"] =
        json!([{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP", "name": "dns"}]);
    container["readinessProbe"] = json!({"httpGet": {"port": 80}});
    container["livenessProbe"] = json!({"tcpSocket": {"port": "dns"}, "periodSeconds": 5});
    container["resources"] = json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}});
    container["securityContext"] = json!({});
    template["spec"]["volumes"] = json!([{"name": "tmp", "emptyDir": {}}]);
    let statefulset = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "a"},
        "spec": {
            "replicas": 0, "serviceName": "a", "updateStrategy": {},
            "selector": {"matchLabels": {"app": "a"}}, "template": template,
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
            }]
        }
    });
    converges(&mut world, &statefulset).await;
}

#[tokio::test]
async fn k8s_95460_string_data_and_empty_values_are_quiet() {
    let mut world = World::new("quiet").await;
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "annotations": {}},
            "stringData": {"user": "app", "empty": ""}, "data": {"key": "a2V5"}
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
            "data": {"empty": "", "text": "a\nb"}, "binaryData": {}, "immutable": false
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a"},
            "spec": {"tls": [], "rules": [{"host": "", "http": {"paths": [{
                "path": "/", "pathType": "Prefix", "backend": {"service": {"name": "a", "port": {"number": 80, "name": ""}}}
            }]}}]}
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"},
            "subjects": [], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"},
            "spec": {"podSelector": {}, "ingress": [{}], "policyTypes": ["Ingress"]}
        }),
    ];
    for object in &objects {
        converges(&mut world, object).await;
    }
}

#[tokio::test]
async fn what_the_server_allocates_or_normalises_is_quiet() {
    let mut world = World::new("quiet").await;
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"selector": {"app": "a"}, "ports": [{"name": "a", "port": 80, "targetPort": "http"}, {"name": "b", "port": 81}]}
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0.5Gi"}}}
        }),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
            "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "a"}}}
        }),
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {
                "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1000m"}}}]
            }
        }),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "imagePullSecrets": [], "secrets": null}),
    ];
    for object in &objects {
        converges(&mut world, object).await;
    }
}

#[tokio::test]
async fn a_change_is_one_write_of_one_request() {
    let world = World::new("quiet").await;
    let statefulset = |replicas: u32| {
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "a"},
            "spec": {
                "replicas": replicas, "serviceName": "a", "selector": {"matchLabels": {"app": "a"}},
                "template": pod_template("a")
            }
        })
    };
    world.pass(vec![apply(&statefulset(0))]).await;
    for replicas in [2, 1] {
        let before = world.spent();
        assert_eq!(short(&world.pass(vec![apply(&statefulset(replicas))]).await), ["Written"]);
        assert_eq!(world.spent_since(&before), [("apply", 1)].into());
        assert_eq!(world.get("StatefulSet", "a").await.unwrap()["spec"]["replicas"], replicas);
    }
}
