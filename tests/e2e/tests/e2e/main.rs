//! The host as it is installed: its binary, real plugins, the account and rights of `deploy/`, a real API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod at_rest;
mod authors;
mod bad_input;
mod behaviours;
mod chaos_pod;
mod crash;
mod deletion;
mod deploy;
mod drift;
mod egapp;
mod held;
mod hostile;
mod hot_reload;
mod image;
mod languages;
mod lax;
mod leases;
mod life;
mod local;
mod monitoring;
mod new_projects;
mod operators;
mod outage;
mod pod_replica;
mod refusals;
mod rights;
mod scaling;
mod schemas;
mod scripted;
mod secrets;
mod support;
mod webhooks;

pub(crate) use pilothouse_e2e::{mounted, rest, stamped};
