//! Functions of WASI that no plugin gets.
//!
//! Where WASI's own signature has an error for "you may not", as all of sockets and files have, a call gets that error:
//! Python and JavaScript make an exception of it, which the plugin's author sees in the log, with a line of their own
//! code. Everything else traps with the function's name. Either way nothing happens.

use wasmtime::component::types::{ComponentFunc, Type};
use wasmtime::component::{LinkerInstance, Val};

use super::Denied;
use crate::call::CallState;

/// What WASI's error codes call it: `wasi:sockets`, `wasi:filesystem` and `wasi:http`, in this order.
const WORDS: [&str; 3] = ["access-denied", "access", "HTTP-request-denied"];

/// Links a function that is not offered.
pub(super) fn define(
    at: &mut LinkerInstance<'_, CallState>,
    interface: &str,
    name: &str,
    function: &ComponentFunc,
) -> wasmtime::Result<()> {
    if let Some(refusal) = refusal(function) {
        return at.func_new(name, move |mut store, _, arguments, results| {
            for argument in arguments {
                if let Val::Resource(handle) = argument {
                    // A borrow has to be given back before the call ends, or the call itself is at fault.
                    handle.resource_drop(&mut store)?;
                }
            }
            // One result: `refusal` saw to that.
            for result in results {
                *result = refusal.clone();
            }
            Ok(())
        });
    }
    let denied = Denied::Function(format!("{interface}#{name}"));
    at.func_new(name, move |_, _, _, _| Err(denied.clone().into()))
}

/// The result that says no, if the function's type has one.
fn refusal(function: &ComponentFunc) -> Option<Val> {
    let mut results = function.results();
    let (Some(Type::Result(result)), None) = (results.next(), results.next()) else { return None };
    let error = match result.err()? {
        Type::Enum(codes) => Val::Enum(word(codes.names())?),
        Type::Variant(codes) => {
            let bare = codes.cases().filter(|case| case.ty.is_none()).map(|case| case.name);
            Val::Variant(word(bare)?, None)
        }
        _ => return None,
    };
    Some(Val::Result(Err(Some(Box::new(error)))))
}

fn word<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<String> {
    names.find(|name| WORDS.contains(name)).map(str::to_owned)
}
