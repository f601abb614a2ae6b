//! Another version of a plugin takes over its webhooks while they are called.

use pilothouse_e2e::stream::{Stream, all_taken};
use pilothouse_harness::eventually;
use serde_json::json;

use super::{guarded, host, object};
use crate::{
    scripted::{self, SCRIPTED, scripted},
    stamped::{count, counts, serves},
    support::DEADLINE,
};

const REQUESTS: &str = "controller_runtime_webhook_requests_total";
const CHECKED: [(&str, &str); 2] = [("webhook", "/validate/scripted"), ("code", "200")];

#[tokio::test]
async fn no_call_fails_while_versions_follow_each_other() {
    let manifest = json!({"admission": {}, "controller": scripted::config_maps_only()});
    let world = guarded("swap", &json!({})).await;
    let host = host(&world).await;
    let stream = Stream::begin(&world, SCRIPTED, |number| object(&format!("o-{}", number % 20), json!({})));
    let place = world.plugins.path().join("scripted.wasm");
    for version in ["2", "3", "4"] {
        let staged = place.with_extension("staged");
        std::fs::write(&staged, scripted(version, &manifest)).unwrap();
        std::fs::rename(&staged, &place).unwrap();
        serves(&host, &[("scripted", version)]).await;
        let calls = count(&host, REQUESTS, &CHECKED).await;
        counts(&host, REQUESTS, &CHECKED, calls + 20).await;
        eventually(DEADLINE, "the new version to answer", || async {
            let (accepted, said) = world.try_apply(&object("v", json!({"warnings": ["$(version)"]}))).await;
            anyhow::ensure!(accepted && said.contains(&format!("Warning: {version}")), "{said}");
            // Unchanged objects are not asked about anew by everybody.
            world.delete(SCRIPTED, "v").await;
            Ok(())
        })
        .await;
    }
    assert!(all_taken(&stream.end().await) >= 60);
}
