//! What README shows must be what is there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(root.join(path)).unwrap()
}

#[test]
fn the_operator_in_readme_is_the_plugin_and_has_forty_lines() {
    let source = read("plugins/config-map/src/lib.rs");
    assert!(source.lines().count() <= 40, "{} lines", source.lines().count());
    assert!(read("README.md").contains(&format!("```rust\n{source}```")), "README.md shows another text");
}

#[test]
fn every_command_of_readme_is_a_target_of_make() {
    let makefile = read("Makefile");
    let readme = read("README.md");
    let targets = readme.lines().map(str::trim).filter_map(|line| line.strip_prefix("make "));
    let mut count = 0;
    for target in targets.flat_map(|rest| rest.split('#').next().unwrap().split_whitespace()) {
        assert!(makefile.contains(&format!("\n{target}:")), "make {target}");
        count += 1;
    }
    assert!(count >= 4, "README names {count} targets");
}
