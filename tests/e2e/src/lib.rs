//! What the end-to-end tests stand on: a namespace of their own on the control plane that all tests of a binary
//! share, the host's binary with the plugins that they name, and kubectl.
//!
//! Nothing here runs the host as an administrator. [`World::deployed`] has the rights of `deploy/`, which are those
//! of the PostgresCluster plugin; [`World::granted`] those that `pilothouse rbac` prints for the plugins of the test.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test that asked for it")]

mod audit;
pub mod balancer;
pub mod crowd;
pub mod duel;
pub mod foreign;
pub mod killing;
mod kinds;
pub mod late;
pub mod loading;
pub mod mounted;
mod programs;
pub mod rest;
pub mod stamped;
pub mod stream;
pub mod tls_client;
pub mod webhooks;
mod world;

use std::time::Duration;

pub use audit::Mark;
pub use kinds::{
    CHAOS_POD, CONFIG_MAP, DEPLOYMENT, EG_APP, EVENT, GREETING, Kind, LEASE, MUTATING, POD,
    POD_DISRUPTION_BUDGET, POD_REPLICA, POSTGRES_CLUSTER, SECRET, SERVICE, STATEFUL_SET, VALIDATING,
};
pub use programs::{pilothouse, plugin, plugin_directory, run, try_run, try_run_with};
pub use world::{Account, World, condition, sample};

/// How long a test waits for anything: long enough for two busy cores, and never reached by a test that passes.
pub const DEADLINE: Duration = Duration::from_mins(2);
