//! The contract is frozen once it is released. A change of `wit/` shows here; whoever means it makes a new version of
//! the package, or before the first release runs this test with `UPDATE_GOLDEN=1`.

use std::path::Path;

use pilothouse_sandbox::inspect::{CONTRACT_VERSION, LOG, RECONCILER};
use wit_component::WitPrinter;
use wit_parser::{Resolve, WorldKey};

const GOLDEN: &str = "tests/sandbox/contract.golden.wit";

fn contract() -> (Resolve, wit_parser::PackageId) {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit")).unwrap();
    (resolve, package)
}

#[test]
fn a_change_of_the_contract_is_seen() {
    let (resolve, package) = contract();
    // Comments may be improved at any time; names, types and their order may not.
    let mut printer = WitPrinter::default();
    printer.emit_docs(false);
    printer.print(&resolve, package, &[]).unwrap();
    let present = printer.output.to_string();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &present).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    for (at, (present, golden)) in present.lines().zip(golden.lines()).enumerate() {
        assert_eq!(present, golden, "{GOLDEN}, line {}", at + 1);
    }
    assert_eq!(present.lines().count(), golden.lines().count(), "{GOLDEN}");
}

#[test]
fn the_names_that_components_are_known_by_are_those_of_the_contract() {
    let (resolve, package) = contract();
    assert_eq!(resolve.packages[package].name.version.as_ref().unwrap().to_string(), CONTRACT_VERSION);
    let world = &resolve.worlds[resolve.select_world(&[package], Some("plugin")).unwrap()];
    let names = |keys: &mut dyn Iterator<Item = &WorldKey>| -> Vec<String> {
        keys.map(|key| resolve.name_world_key(key)).collect()
    };
    assert_eq!(names(&mut world.exports.keys()), [RECONCILER]);
    let imports = names(&mut world.imports.keys());
    assert!(imports.contains(&LOG.to_owned()), "{imports:?}");
}
