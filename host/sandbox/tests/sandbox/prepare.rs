//! Components that cannot be served, and what is said of each.

use pilothouse_model::limits::Limits;
use pilothouse_sandbox::{CallError, Compiler, PrepareError, Sandbox, SandboxOptions};

use crate::guests::{prepare, sandbox};

/// The same component with other names in it.
fn renamed(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut component = pilothouse_guests::hostile().to_vec();
    let places: Vec<usize> =
        (0..component.len()).filter(|at| component[*at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "{from}");
    for at in places {
        component[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    component
}

#[test]
fn a_prepared_plugin_says_what_it_is() {
    let sandbox = sandbox();
    let plugin = prepare(&sandbox, pilothouse_guests::hostile());
    assert_eq!(plugin.manifest().name.as_str(), "hostile");
    assert_eq!(plugin.manifest().controllers[0].primary.plural, "hostiles");
    assert_eq!(plugin.contract_version(), "0.1.0");
    assert_eq!(plugin.exports(), ["pilothouse:operator/reconciler@0.1.0"]);
    let mut imports = plugin.imports().to_vec();
    imports.sort();
    assert_eq!(imports, ["pilothouse:operator/log@0.1.0", "pilothouse:operator/types@0.1.0"]);
    assert_eq!(plugin.wasm_bytes(), pilothouse_guests::hostile().len() as u64);
    assert!(plugin.compiled_bytes() > plugin.wasm_bytes() && !plugin.from_cache());
    assert_eq!(plugin.digest(), pilothouse_model::names::Digest::of(pilothouse_guests::hostile()));
}

#[test]
fn another_contract_version_is_refused_with_both_named() {
    let component = renamed("pilothouse:operator/reconciler@0.1.0", "pilothouse:operator/reconciler@0.2.0");
    let error = sandbox().prepare(&component, &Limits::default()).unwrap_err();
    assert_eq!(error.reason(), "ContractVersion");
    let text = error.to_string();
    assert!(text.contains("is of contract version 0.2.0, this host knows 0.1.0"), "{text}");
}

#[test]
fn an_import_that_is_not_ours_is_named() {
    let component = renamed("pilothouse:operator/log@0.1.0", "acme-company:database/q@0.1.0");
    let error = sandbox().prepare(&component, &Limits::default()).unwrap_err();
    assert_eq!(error.reason(), "ContractMismatch");
    assert!(error.to_string().starts_with("imports `acme-company:database/q@0.1.0`"), "{error}");
}

#[test]
fn an_import_of_another_type_does_not_fit() {
    // `write` of the log under another name: an interface of ours without the function that is asked for.
    let component = renamed("write", "erase");
    let error = sandbox().prepare(&component, &Limits::default()).unwrap_err();
    assert_eq!(error.reason(), "ContractMismatch");
    assert!(error.to_string().contains("erase"), "{error}");
}

#[test]
fn damaged_and_oversized_components_are_refused() {
    let sandbox =
        Sandbox::new(SandboxOptions { wasm_bytes_max: 1 << 20, ..SandboxOptions::new(Compiler::InProcess) });
    let sandbox = sandbox.unwrap();
    let whole = pilothouse_guests::hostile();
    let error = sandbox.prepare(&whole[..whole.len() / 2], &Limits::default()).unwrap_err();
    assert_eq!(error.reason(), "NotAComponent", "{error}");

    let mut damaged = whole.to_vec();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xff);
    let error = sandbox.prepare(&damaged, &Limits::default()).unwrap_err();
    assert!(["NotAComponent", "CompileFailed"].contains(&error.reason()), "{error}");

    let error = sandbox.prepare(&vec![0; (1 << 20) + 1], &Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "has 1048577 bytes, at most 1048576 are accepted");
}

#[test]
fn describe_runs_under_limits_and_is_checked() {
    let sandbox = sandbox();
    let limits = Limits { cpu_ms: 100, ..Limits::default() };
    let describing = |behaviour: &str| {
        sandbox.prepare(&pilothouse_guests::hostile_describing(behaviour), &limits).unwrap_err()
    };
    assert!(matches!(describing("loops"), PrepareError::Describe(CallError::CpuLimit { .. })));
    assert!(matches!(describing("floods"), PrepareError::Describe(CallError::OutputLimit { .. })));
    let trap = describing("traps");
    assert!(trap.to_string().contains("about to trap in describe"), "{trap}");
    for behaviour in ["lies", "babbles"] {
        let error = describing(behaviour);
        assert_eq!(error.reason(), "ManifestInvalid", "{behaviour}: {error}");
    }
}
