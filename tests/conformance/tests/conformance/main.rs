//! `pilothouse check` on every plugin of the workspace, and on plugins that break one rule each.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hostile;
mod plugins;
