//! At rest the host writes nothing. `make test-faults` has the version with a thousand objects of each plugin.

use pilothouse_e2e::rest::writes_nothing_at_rest;

#[tokio::test]
async fn two_full_resyncs_and_a_restart_write_nothing() {
    writes_nothing_at_rest(20, 2).await;
}
