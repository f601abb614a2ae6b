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

    /// Interfaces that a plugin may export besides, each looked up by itself. Their arguments are owned: a text is moved
    /// here from the request, and nobody else needs it.
    pub mod further {
        wasmtime::component::bindgen!({
            path: "../../wit",
            inline: "
                package pilothouse:host;
                world further {
                    export pilothouse:operator/admission@0.1.0;
                    export pilothouse:operator/conversion@0.1.0;
                }
            ",
            world: "pilothouse:host/further",
        });
    }
}
