//! The contract's types and calls as wasmtime makes them from `wit/`, one module for each contract version that this
//! host knows. Borrowed on the way in, so that a request's texts are copied once, into the guest's memory.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    reason = "generated; documented in wit/operator.wit"
)]

/// Contract version 0.1.0.
pub mod v0_1 {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "plugin",
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}
