//! The Kubernetes side of the host. Everything that knows `kube` is here, and none of its types leave this crate
//! except the client that [`Cluster::writer`] hands to [`write::Writer::new`].
//!
//! Reading, in the order in which an object passes through:
//!
//! - [`Cluster`]: configuration, credentials, connections
//! - [`discovery`]: what the API server has; [`crd`]: CustomResourceDefinitions that a plugin brings along
//! - [`watches`]: one watch for all who want the same objects, ended with the last of them
//! - [`store`]: the objects at their size on the wire, by key and by owner
//! - [`relate`]: which primary an object belongs to
//! - [`access`]: single objects and short lists, read when asked for
//! - [`queue`]: which key is reconciled next
//!
//! Writing, in the order in which a pass does it:
//!
//! - [`lease`]: who may
//! - [`finalizer`]: on the primary, before its first child
//! - [`apply`]: the writes of a plan, a few at a time where its roll-outs say so, through [`mod@write`], whose answers
//!   [`write_error`] sorts
//! - [`rehearsal`]: in plan mode, all of that without storing anything; [`annotate`]: what it would have stored
//! - [`keep`]: what the host keeps for itself
//! - [`status`]: the primary's, with the host's own condition
//! - [`event`]: what people shall read about it

pub mod access;
pub mod annotate;
mod answer;
pub mod apply;
mod child;
mod config;
mod connect;
pub mod crd;
mod desired;
pub mod discovery;
mod displaced;
mod error;
pub mod event;
pub mod finalizer;
mod gated;
mod generate;
mod groups;
mod immutable;
mod index;
pub mod keep;
pub mod lease;
mod listeners;
mod owned;
mod pages;
mod path;
pub mod queue;
pub mod rehearsal;
pub mod relate;
mod requests;
mod rollout;
mod seen;
pub mod status;
pub mod store;
mod streamed_lists;
mod takeover;
mod target;
mod transport;
mod watch;
pub mod watches;
mod wire;
pub mod write;
pub mod write_error;

pub use config::{ConnectError, ConnectOptions};
pub use connect::{Cluster, LOG_DIRECTIVES};
pub use error::ReadError;
pub use groups::Grouping;
pub use index::{Change, Delta};
pub use listeners::Listener;
pub use requests::{DURATION_BOUNDS, Durations, RequestCounts};

/// A number that differs from call to call, to spread what would otherwise happen at one instant. Not for secrets.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}
