//! A control plane by itself: several at once, its users, its audit log, its API server gone and back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::ConfigMap,
};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, PostParams},
};
use pilothouse_harness::{Audit, ControlPlane, Options, eventually};

const SOON: Duration = Duration::from_secs(30);

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

async fn user_name(client: Client) -> String {
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    answer.status.unwrap().user_info.unwrap().username.unwrap()
}

async fn may_create_config_maps(client: Client, namespace: &str) -> bool {
    let spec = serde_json::from_value::<SelfSubjectAccessReviewSpec>(serde_json::json!({
        "resourceAttributes": {"namespace": namespace, "verb": "create", "resource": "configmaps"}
    }));
    let review = SelfSubjectAccessReview { spec: spec.unwrap(), ..Default::default() };
    let answer = Api::all(client).create(&PostParams::default(), &review).await.unwrap();
    answer.status.unwrap().allowed
}

#[tokio::test]
async fn two_run_side_by_side_and_know_nothing_of_each_other() {
    let options = Options { controller_manager: false, ..Options::default() };
    let (one, two) =
        tokio::try_join!(ControlPlane::start(options.clone()), ControlPlane::start(options)).unwrap();
    assert_ne!(one.url(), two.url());
    let namespace = one.namespace("only-here").await.unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(two.client().await.unwrap());
    assert!(namespaces.get_opt(&namespace).await.unwrap().is_none());
}

#[tokio::test]
async fn users_and_service_accounts_are_who_they_are_and_may_do_nothing_by_default() {
    let plane = ControlPlane::shared().await;
    let namespace = plane.namespace("users").await.unwrap();

    let alice = plane.kubeconfig_for_user("alice", None).unwrap();
    let alice = plane.client_of(&alice).await.unwrap();
    assert_eq!(user_name(alice.clone()).await, "alice");
    assert!(!may_create_config_maps(alice, &namespace).await);

    let account = plane.kubeconfig_for_service_account(&namespace, "default").await.unwrap();
    let account = plane.client_of(&account).await.unwrap();
    assert_eq!(user_name(account.clone()).await, format!("system:serviceaccount:{namespace}:default"));
    assert!(!may_create_config_maps(account, &namespace).await);

    let root = plane.kubeconfig_for_user("root", Some("system:masters")).unwrap();
    assert!(may_create_config_maps(plane.client_of(&root).await.unwrap(), &namespace).await);
}

#[tokio::test]
async fn the_audit_log_counts_the_writes_of_the_users_that_it_was_asked_for() {
    let options = Options {
        controller_manager: false,
        audit: Audit::Users(vec!["operator".to_owned()]),
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    let namespace = plane.namespace("audit").await.unwrap(); // by `admin`, whom nobody asked for
    let operator = plane.kubeconfig_for_user("operator", Some("system:masters")).unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(plane.client_of(&operator).await.unwrap(), &namespace);

    config_maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    config_maps
        .create(&PostParams { dry_run: true, ..PostParams::default() }, &config_map("b"))
        .await
        .unwrap();
    config_maps.create(&PostParams::default(), &config_map("a")).await.unwrap_err();
    config_maps.list(&ListParams::default()).await.unwrap();

    let events = eventually(SOON, "four events", || async {
        let events = plane.audit_events()?;
        anyhow::ensure!(events.len() >= 4, "{events:?}");
        Ok(Some(events))
    });
    let events = events.await;
    assert!(
        events.iter().all(|event| event.user == "operator" && event.namespace == namespace),
        "{events:?}"
    );
    let seen: Vec<_> = events
        .iter()
        .map(|event| (event.verb.as_str(), event.code, event.is_write(), event.is_dry_run()))
        .collect();
    let expected = [
        ("create", 201, true, false),
        ("create", 201, true, true),
        ("create", 409, true, false),
        ("list", 200, false, false),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn an_api_server_can_go_and_come_back_with_its_data() {
    let options = Options { controller_manager: false, ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(plane.client().await.unwrap(), "default");
    config_maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();

    plane.pause_api_server().unwrap();
    let answer = tokio::time::timeout(Duration::from_millis(300), config_maps.get("kept"));
    assert!(answer.await.is_err(), "a paused API server answered");
    plane.resume_api_server().unwrap();
    config_maps.get("kept").await.unwrap();

    plane.stop_api_server().unwrap();
    config_maps.get("kept").await.unwrap_err();
    plane.start_api_server().await.unwrap();
    config_maps.get("kept").await.unwrap();
}

#[tokio::test]
async fn a_component_that_ends_is_reported_with_its_log() {
    let options = Options {
        controller_manager: false,
        api_server_flags: vec!["--no-such-flag".to_owned()],
        ..Options::default()
    };
    let error = format!("{:#}", ControlPlane::start(options).await.unwrap_err());
    assert!(
        error.contains("kube-apiserver ended") && error.contains("unknown flag: --no-such-flag"),
        "{error}"
    );
}
