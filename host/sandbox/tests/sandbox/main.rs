//! Tests of the sandbox with guests, in one program: each would link wasmtime again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod compile;
mod contract;
mod fairness;
mod guests;
mod hostile;
mod languages;
mod prepare;
mod raw;
mod wasi;
mod webhooks;
