//! The pages of `docs/` that say what stands elsewhere: made of it, so that they stay true. `make generate` writes them, a
//! test compares.

mod contract;
mod limits;
mod manifest;

use std::path::Path;

/// Names and contents of the pages.
///
/// # Panics
/// If the contract or the schema cannot be read.
pub fn pages(root: &Path) -> [(&'static str, String); 3] {
    [
        ("contract.md", contract::page(root)),
        ("manifest.md", manifest::page(root)),
        ("limits.md", limits::page()),
    ]
}

/// Below the title of each.
const MADE: &str = "<!-- `make generate` makes this page; a test compares. -->";

/// A text for the cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
