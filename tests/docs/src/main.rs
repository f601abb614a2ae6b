//! Writes the generated pages into the folder that is named, for `make generate`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: pilothouse-docs DIR");
        return ExitCode::from(2);
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, text) in pilothouse_docs::pages(here.ancestors().nth(2).unwrap_or(here)) {
        let path = Path::new(&folder).join(name);
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
