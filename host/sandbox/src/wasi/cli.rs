//! The process and its surroundings: there are none.

use wasmtime::component::{LinkerInstance, Resource};

use super::streams::{STDERR, STDIN, STDOUT};
use super::{Absent, Denied, InputStream, OutputStream};
use crate::call::CallState;

type Texts = Vec<String>;
type Pairs = Vec<(String, String)>;
type Directories = Vec<(Resource<Absent>, String)>;

pub(super) fn define(
    at: &mut LinkerInstance<'_, CallState>,
    interface: &str,
    name: &str,
) -> wasmtime::Result<bool> {
    match (interface, name) {
        ("cli/environment", "get-environment") => at.func_wrap(name, |_, ()| Ok((Pairs::new(),)))?,
        ("cli/environment", "get-arguments") => at.func_wrap(name, |_, ()| Ok((Texts::new(),)))?,
        ("cli/environment", "initial-cwd") => at.func_wrap(name, |_, ()| Ok((None::<String>,)))?,
        ("cli/exit", "exit") => {
            at.func_wrap(name, |_, (_status,): (Result<(), ()>,)| Err::<(), _>(Denied::Exit.into()))?;
        }
        ("cli/stdin", "get-stdin") => {
            at.func_wrap(name, |_, ()| Ok((Resource::<InputStream>::new_own(STDIN),)))?;
        }
        ("cli/stdout", "get-stdout") => {
            at.func_wrap(name, |_, ()| Ok((Resource::<OutputStream>::new_own(STDOUT),)))?;
        }
        ("cli/stderr", "get-stderr") => {
            at.func_wrap(name, |_, ()| Ok((Resource::<OutputStream>::new_own(STDERR),)))?;
        }
        ("cli/terminal-stdin", "get-terminal-stdin")
        | ("cli/terminal-stdout", "get-terminal-stdout")
        | ("cli/terminal-stderr", "get-terminal-stderr") => {
            at.func_wrap(name, |_, ()| Ok((None::<Resource<Absent>>,)))?;
        }
        ("filesystem/preopens", "get-directories") => {
            at.func_wrap(name, |_, ()| Ok((Directories::new(),)))?;
        }
        // CPython asks for the network before it asks for a name in it, which is refused.
        ("sockets/instance-network", "instance-network") => {
            at.func_wrap(name, |_, ()| Ok((Resource::<Absent>::new_own(0),)))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
