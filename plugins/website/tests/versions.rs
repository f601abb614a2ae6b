//! Both versions say the same; and what is checked before either is stored.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilothouse_sdk::Conversion as _;
use pilothouse_sdk::serde_json::{Value, json};
use pilothouse_sdk::testing::{Cluster, Request, converted};
use proptest::prelude::*;
use website::v1::Website;

fn object(version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Website",
           "metadata": {"name": "shop", "namespace": "default", "uid": "u", "generation": 3}, "spec": spec})
}

#[test]
fn an_address_is_a_host_and_a_port() {
    let old = object("v1alpha1", json!({"address": "shop.example.com:8443"}));
    let new = converted::<Website>(&old, "v1");
    assert_eq!(new["spec"], json!({"host": "shop.example.com", "port": 8443}));
    let without_port = object("v1alpha1", json!({"address": "shop.example.com"}));
    assert_eq!(converted::<Website>(&without_port, "v1")["spec"], json!({"host": "shop.example.com"}));
}

#[test]
fn what_the_old_version_cannot_say_stays_beside_it() {
    let new = object("v1", json!({"host": "a.example.com", "path": "/shop", "title": "Shop"}));
    let old = converted::<Website>(&new, "v1alpha1");
    assert_eq!(old["spec"], json!({"address": "a.example.com"}));
    assert_eq!(
        old["metadata"]["annotations"]["example.com/website-v1"],
        r#"{"path":"/shop","title":"Shop"}"#
    );
}

#[test]
fn what_cannot_be_converted_is_named() {
    let mut wrong = object("v1alpha1", json!({"address": "a:99999"}));
    let problem = Website::convert(&mut wrong, "v1alpha1", "v1").unwrap_err();
    assert_eq!(problem, "spec.address: `99999` is no port");
    let problem = Website::convert(&mut wrong, "v1alpha1", "v7").unwrap_err();
    assert_eq!(problem, "there is no way from v1alpha1 to v7");
}

fn spec() -> impl Strategy<Value = Value> {
    let host = "[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?";
    let (port, path, title) =
        (prop::option::of(1_u16..), prop::option::of("/[ -~]{0,20}"), prop::option::of(".{0,20}"));
    (host, port, path, title).prop_map(|(host, port, path, title)| {
        let spec = Website { host, port, path, title };
        pilothouse_sdk::serde_json::to_value(spec).unwrap()
    })
}

proptest! {
    #[test]
    fn there_and_back_nothing_is_lost(spec in spec(), annotated: bool) {
        let mut new = object("v1", spec);
        if annotated {
            new["metadata"]["annotations"] = json!({"example.com/other": "x"});
        }
        // Which checks the way back as well.
        let old = converted::<Website>(&new, "v1alpha1");
        prop_assert_eq!(converted::<Website>(&old, "v1"), new);
    }

    #[test]
    fn the_old_version_survives_the_new_one(host in "[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", port in prop::option::of(1_u16..)) {
        let address = port.map_or(host.clone(), |port| format!("{host}:{port}"));
        converted::<Website>(&object("v1alpha1", json!({"address": address})), "v1");
    }
}

#[test]
fn a_title_is_filled_in_and_hosts_are_checked() {
    let defaults = |spec: Value| Request::<Website>::create("my-shop", spec).defaults();
    assert_eq!(defaults(json!({"host": "a"})), json!({"host": "a", "title": "my shop"}));
    assert_eq!(defaults(json!({"host": "a", "title": "T"})), json!({"host": "a", "title": "T"}));
    let verdict = |spec: Value| Request::<Website>::create("my-shop", spec).validate();
    assert!(verdict(json!({"host": "a.example.com"})).is_allowed());
    let denied = verdict(json!({"host": "a.invalid"}));
    assert_eq!(denied.to_string(), "spec.host: nothing is ever served below `.invalid`");
    assert_eq!(verdict(json!({"host": "a", "port": 80})).warnings.len(), 1);
    let unreadable = verdict(json!({"host": "a", "port": "x"}));
    assert!(unreadable.to_string().starts_with("spec.port: "), "{unreadable}");
}

#[test]
fn the_link_is_kept_in_a_config_map() {
    let spec = json!({"host": "a.example.com", "port": 8443, "path": "/x", "title": "T"});
    let mut cluster = Cluster::<Website>::new("default", "shop", spec);
    cluster.settle();
    let map = cluster.child(pilothouse_sdk::kinds::CONFIG_MAP, "shop").unwrap();
    assert_eq!(map["data"], json!({"url": "https://a.example.com:8443/x", "title": "T"}));
}
