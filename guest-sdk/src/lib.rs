//! Write a Kubernetes operator as a pure function: what is wanted and what there is go in, what to do comes out. The
//! Pilothouse host owns watches, queues, writes, ownership, finalizers, retries and limits.
//!
//! An author implements [`Reconciler`] for the type of a kind's `spec` and names it in [`export!`]. Built for
//! `wasm32-unknown-unknown` that is a component of the world `pilothouse:operator/plugin`; built natively it is a
//! library that [`testing`] runs with plain values.
//!
//! - what a pass knows: [`Pass`], with [`Object`]s and their typed [`views`]
//! - what it may decide: [`Actions`], made of the types in [`action`]
//! - what the plugin says of itself: [`Controller`] and [`Crd`], from which [`Manifest`] is made
//! - names of built-in kinds: [`kinds`]
//! - its clock and its randomness: [`time`] and [`random`]
//! - checks: [`Problems`] and [`names`]

pub mod action;
mod admission;
#[doc(hidden)]
pub mod bindings;
mod condition;
pub mod conversion;
mod crd;
#[doc(hidden)]
pub mod glue;
pub mod kinds;
pub mod log;
mod manifest;
pub mod names;
mod object;
mod pass;
mod problems;
pub mod random;
mod reconciler;
mod schema;
mod selector;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
pub mod time;
mod update;
pub mod views;

pub use action::{Action, Actions};
pub use admission::{Admission, Asked, Cause, Operation, Review, Verdict, Wrong};
pub use condition::{Condition, State};
pub use conversion::Conversion;
pub use crd::{Column, Crd};
pub use kinds::{Resource, Scope};
pub use manifest::{Child, Controller, Guard, Manifest, Primary, Related, Target};
pub use object::Object;
pub use pass::{Answer, LastPass, Pass, Rejected};
pub use problems::{Problem, Problems};
pub use reconciler::{Failure, NoStatus, Reconciler};
pub use selector::{LabelSelector, Operator, Requirement};
pub use serde_json;
pub use update::Update;

/// What a plugin's files usually need.
pub mod prelude {
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};

    pub use crate::action::{
        Alphabet, Apply, Delete, Event, LookUp, OnImmutable, PatchTarget, Propagation, Reference,
        SecretTemplate,
    };
    pub use crate::kinds::*;
    pub use crate::views::{self, View as _};
    pub use crate::{
        Actions, Admission, Asked, Child, Column, Condition, Controller, Conversion, Crd, Failure, Guard,
        LabelSelector, LastPass, NoStatus, Object, Pass, Problems, Reconciler, Related, Review, State,
        Target, Update, Verdict, Wrong, export, log,
    };
}

/// Makes the crate a plugin with these reconcilers: `export!(Greeting)`, `export!(Web, Database)`.
///
/// The plugin's name and version are those of its package. Besides the component's exports, the crate gets a function
/// `manifest()`, for tests.
///
/// Kinds that are guarded and converted follow, as far as there are any:
/// `export!(Web, Database; admission: Web; conversion: Web, Database)`. See [`Admission`] and [`Conversion`].
#[macro_export]
macro_rules! export {
    (
        $($reconciler:ty),+ $(,)?
        $(; admission: $($admission:ty),+ $(,)?)?
        $(; conversion: $($conversion:ty),+ $(,)?)?
        $(;)?
    ) => {
        /// What this plugin says of itself.
        pub fn manifest() -> $crate::Manifest {
            $crate::Manifest {
                name: env!("CARGO_PKG_NAME"),
                version: env!("CARGO_PKG_VERSION"),
                controllers: vec![$(<$reconciler as $crate::Reconciler>::controller()),+],
                guards: vec![$($(<$admission as $crate::Admission>::guard()),+)?],
            }
        }

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::exports::pilothouse::operator::reconciler::{Desired, Guest, Observed, Outcome};

            struct Plugin;

            impl Guest for Plugin {
                fn describe() -> String {
                    $crate::glue::describe(&manifest())
                }

                fn reconcile(desired: Desired, observed: Observed) -> Outcome {
                    const ENTRIES: &[$crate::glue::Entry] = &[$($crate::glue::Entry::of::<$reconciler>()),+];
                    $crate::glue::reconcile(ENTRIES, desired, observed)
                }
            }

            $crate::bindings::export_plugin!(Plugin with_types_in $crate::bindings);
        };

        $(
            #[cfg(target_arch = "wasm32")]
            const _: () = {
                use $crate::bindings::admission::exports::pilothouse::operator::admission::{
                    AdmissionRequest, Guest, Verdict,
                };

                struct Plugin;

                const ENTRIES: &[$crate::glue::Guarding] = &[$($crate::glue::Guarding::of::<$admission>()),+];

                impl Guest for Plugin {
                    fn validate(request: AdmissionRequest) -> Verdict {
                        $crate::glue::validate(ENTRIES, request)
                    }

                    fn default_fields(request: AdmissionRequest) -> String {
                        $crate::glue::default_fields(ENTRIES, request)
                    }
                }

                $crate::bindings::admission::export_admission!(
                    Plugin with_types_in $crate::bindings::admission
                );
            };
        )?

        $(
            #[cfg(target_arch = "wasm32")]
            const _: () = {
                use $crate::bindings::conversion::exports::pilothouse::operator::conversion::Guest;

                struct Plugin;

                const ENTRIES: &[$crate::glue::Converting] = &[$($crate::glue::Converting::of::<$conversion>()),+];

                impl Guest for Plugin {
                    fn convert(objects: Vec<String>, to_version: String) -> Result<Vec<String>, String> {
                        $crate::glue::convert(ENTRIES, objects, &to_version)
                    }
                }

                $crate::bindings::conversion::export_conversion!(
                    Plugin with_types_in $crate::bindings::conversion
                );
            };
        )?
    };
}
