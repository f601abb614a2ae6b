//! What tests of `make test` show in small, in the numbers that users have.

use pilothouse_e2e::{
    Kind, foreign::memory_does_not_depend_on_foreign_objects, loading::loaded_and_unloaded,
    rest::writes_nothing_at_rest, stamped::write,
};
use pilothouse_guests::Scripted;
use serde_json::json;

use crate::ONE_AT_A_TIME;

/// A thousand objects of each plugin, over five resyncs and a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_objects_of_each_plugin_at_rest_cost_no_write() {
    let _turn = ONE_AT_A_TIME.lock().await;
    writes_nothing_at_rest(1_000, 5).await;
}

/// CR#2099, #1884: memory grows by no more than 2 % from the hundredth load to the thousandth.
#[tokio::test(flavor = "multi_thread")]
async fn cr_2099_a_thousand_loads_and_unloads_leave_nothing_behind() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let memory = loaded_and_unloaded(1_000, 100).await;
    assert!(memory.end * 100 <= memory.warm * 102, "{memory:?}");
}

/// prometheus-operator#5410, bpfman-operator#56: in these sizes the objects of others are 300 MB.
#[tokio::test(flavor = "multi_thread")]
async fn prometheus_operator_5410_memory_does_not_depend_on_objects_of_others() {
    const SCRIPTED: Kind = Kind("test.pilothouse.dev/v1", "Scripted", "scripteds");
    let _turn = ONE_AT_A_TIME.lock().await;
    let files = tempfile::tempdir().unwrap();
    let plugin = Scripted { name: "scripted", kind: SCRIPTED.1, version: "1", manifest: json!({}) };
    let plugin = write(files.path(), "scripted.wasm", plugin.component());
    memory_does_not_depend_on_foreign_objects(&plugin, SCRIPTED, 10_000, 500).await;
}
