//! The contract, generated from `wit/operator.wit`. Authors do not see it: the types of this crate are nicer, and
//! [`crate::glue`] translates.

// The canonical ABI is raw memory: the generated code is the only unsafe code of a plugin.
#![allow(unsafe_code, missing_docs, unreachable_pub, clippy::pedantic)]

wit_bindgen::generate!({
    path: "../wit",
    world: "plugin",
    pub_export_macro: true,
    export_macro_name: "export_plugin",
    default_bindings_module: "pilothouse_sdk::bindings",
    additional_derives: [PartialEq],
});
