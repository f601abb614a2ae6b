use pilothouse_sdk::prelude::*;
use pilothouse_sdk::testing::Cluster;
use sites::SiteSpec;

#[test]
fn a_page_is_served_by_pods() {
    let spec = json!({"page": "<h1>Hello</h1>", "replicas": 2});
    let mut cluster = Cluster::<SiteSpec>::new("default", "hello", spec);
    let changes = cluster.pass();
    assert_eq!(changes[..3], ["create ConfigMap hello", "create Deployment hello", "create Service hello"]);

    // What the Deployment controller would say.
    cluster.child_mut(DEPLOYMENT, "hello")["status"] = json!({
        "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
    });
    assert_eq!(cluster.settle().condition("Ready").map(|ready| ready.state), Some(State::True));

    cluster.edit(|spec| spec["replicas"] = json!(3));
    assert_eq!(cluster.pass()[0], "Deployment hello: spec.replicas");
}

#[test]
fn text_that_is_no_html_is_the_users_to_change() {
    let outcome = Cluster::<SiteSpec>::new("default", "hello", json!({"page": "Hello"})).reconcile();
    assert!(matches!(outcome.failure, Some(Failure::Invalid(text)) if text.starts_with("spec.page: ")));
}
