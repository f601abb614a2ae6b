//! A real Kubernetes control plane for tests, benchmarks and `make run`, with a stand-in for the kubelet and a
//! handle on the program under test.
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use std::time::Duration;
//! use pilothouse_harness::{ControlPlane, KubeletOptions, Options, eventually};
//!
//! let plane = ControlPlane::start(Options::default()).await?;
//! let kubelet = plane.kubelet(KubeletOptions::default()).await?;
//! let namespace = plane.namespace("shop").await?;
//! // apply things in `namespace` through `plane.client()` …
//! eventually(Duration::from_secs(30), "the shop to open", || async { true }).await;
//! # drop(kubelet); Ok(()) }
//! ```
//!
//! Nothing outlives the process that asked for it, however that process ends; see [`guardian`] for how.

pub mod audit;
mod components;
mod control_plane;
mod custody;
mod fault_server;
pub mod guardian;
mod host;
mod kubeconfig;
mod kubelet;
pub mod local;
mod metrics;
mod operator;
mod pki;
mod pod_status;
mod ports;
pub mod process;
mod programs;
mod proxy;
mod wait;
pub mod workspace;

pub use audit::{Audit, AuditEvent};
pub use control_plane::{ControlPlane, Options};
pub use fault_server::{Answer, Asked, FaultServer};
pub use host::{Host, HostOptions};
pub use kubelet::{Decide, Kubelet, KubeletOptions};
pub use metrics::Metrics;
pub use operator::{Operator, OperatorCommand};
pub use pod_status::PodState;
pub use process::{Process, Usage};
pub use proxy::{Line, Proxy};
pub use wait::{Verdict, eventually};
