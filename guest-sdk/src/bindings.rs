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

/// The interface `admission`, for plugins that guard. A component's worlds add up, so that others do not export it.
pub mod admission {
    wit_bindgen::generate!({
        path: "../wit",
        inline: "
            package pilothouse:sdk-admission;
            world guarding {
                export pilothouse:operator/admission@0.1.0;
            }
        ",
        world: "pilothouse:sdk-admission/guarding",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_admission",
        default_bindings_module: "pilothouse_sdk::bindings::admission",
        additional_derives: [PartialEq],
    });
}

/// The interface `conversion`, for plugins that convert.
pub mod conversion {
    wit_bindgen::generate!({
        path: "../wit",
        inline: "
            package pilothouse:sdk-conversion;
            world converting {
                export pilothouse:operator/conversion@0.1.0;
            }
        ",
        world: "pilothouse:sdk-conversion/converting",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_conversion",
        default_bindings_module: "pilothouse_sdk::bindings::conversion",
    });
}
