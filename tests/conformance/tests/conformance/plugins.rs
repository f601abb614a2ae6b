//! Our own plugins keep the contract.

use std::fs;

use pilothouse_conformance::check;
use pilothouse_harness::workspace;

/// Every directory of `plugins/`, whatever its language, has cases and passes the suite with them.
#[test]
fn every_plugin_passes_with_its_cases() {
    let mut count = 0;
    for entry in fs::read_dir(workspace::root().join("plugins")).unwrap() {
        let directory = entry.unwrap().path();
        let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
        let component = ["plugins", "languages"]
            .map(|folder| workspace::target_directory().join(folder).join(&name).with_extension("wasm"))
            .into_iter()
            .find(|path| path.is_file());
        let component =
            component.unwrap_or_else(|| panic!("plugin {name} is not built: `make test` builds it"));
        let cases = directory.join("cases");
        assert!(cases.is_dir(), "plugin {name} has no cases: {} would be right", cases.display());
        let checked = check(&component, &[cases], &[]);
        println!("{}", checked.text);
        assert_eq!(checked.code, Some(0), "plugin {name}:\n{}", checked.text);
        count += 1;
    }
    assert!(count >= 3, "{count} plugins");
}
