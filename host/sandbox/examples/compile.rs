//! The compiler child as a program of its own: what `pilothouse compile` is in the host, for tests of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    pilothouse_sandbox::compile_main()
}
