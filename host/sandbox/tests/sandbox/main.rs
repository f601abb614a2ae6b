//! Tests of the sandbox with guests, in one program: each would link wasmtime again.

mod compile;
mod contract;
mod fairness;
mod guests;
mod hostile;
mod prepare;
mod raw;
mod wasi;
