//! Reading from a real API server: connections, watches, and a line between that goes bad.

#![allow(clippy::unwrap_used, reason = "all of it is tests")]

mod comes_and_goes;
mod connect;
mod faults;
mod line;
mod scripted;
mod shared;
mod watch;

use std::path::Path;
use std::time::Duration;

use pilothouse_cluster::ConnectOptions;

/// Deadline of what an idle machine does within two seconds.
const SOON: Duration = Duration::from_secs(30);

fn options(kubeconfig: &Path) -> ConnectOptions {
    ConnectOptions { kubeconfig: Some(kubeconfig.to_owned()), ..ConnectOptions::default() }
}
