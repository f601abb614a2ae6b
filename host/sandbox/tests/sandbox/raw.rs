//! Guests that are written by hand, instruction by instruction: what no compiler emits, and an attacker would.

use std::sync::Arc;

use pilothouse_model::limits::Limits;
use pilothouse_sandbox::{CallError, PrepareError, Prepared, Sandbox};

use crate::guests::{request, sandbox};

const MANIFEST: &str = r#"{
    "name": "raw", "version": "1",
    "controllers": [{ "primary": { "group": "test.pilothouse.dev", "version": "v1", "kind": "Raw", "plural": "raws" } }]
}"#;

/// A module that answers `describe` with [`MANIFEST`]; all else can be replaced.
struct Module {
    /// Pages of its memory.
    pages: u32,
    /// Further definitions.
    items: &'static str,
    /// Body of `reconcile`, which returns the address of an outcome.
    reconcile: &'static str,
    /// Body of the allocator that the host calls; 3 is the size.
    realloc: &'static str,
}

/// An outcome of nothing lies at 64.
const HONEST: Module = Module {
    pages: 2,
    items: "",
    reconcile: "i32.const 64",
    realloc: "
        global.get $next
        (global.set $next (i32.add (global.get $next) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8))))
    ",
};

impl Module {
    fn component(&self) -> Vec<u8> {
        let Self { pages, items, reconcile, realloc } = self;
        let bytes =
            |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:02x}")).collect::<Vec<_>>().concat();
        let length = u32::try_from(MANIFEST.len()).unwrap();
        let text = [1024_u32.to_le_bytes(), length.to_le_bytes()].concat();
        let module = format!(
            r#"(module
                (memory (export "memory") {pages})
                (global $next (mut i32) (i32.const 8192))
                {items}
                (func (export "pilothouse:operator/reconciler@0.1.0#describe") (result i32) i32.const 16)
                (func (export "pilothouse:operator/reconciler@0.1.0#reconcile")
                    (param i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32) {reconcile})
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {realloc})
                (data (i32.const 16) "{}")
                (data (i32.const 1024) "{}")
            )"#,
            bytes(&text),
            bytes(MANIFEST.as_bytes()),
        );
        pilothouse_guests::assemble(&module).unwrap()
    }

    fn prepare(&self, sandbox: &Sandbox) -> Result<Prepared, PrepareError> {
        sandbox.prepare(&self.component(), &limits())
    }

    fn call(&self) -> Result<usize, CallError> {
        let sandbox = sandbox();
        let plugin = Arc::new(self.prepare(&sandbox).unwrap());
        let reply = sandbox.reconcile_blocking(&plugin, &limits(), Arc::new(request("", 0)));
        reply.result.map(|outcome| outcome.actions.len())
    }
}

fn limits() -> Limits {
    Limits { cpu_ms: 200, ..Limits::default() }
}

#[test]
fn the_honest_module_is_served() {
    assert_eq!(HONEST.call(), Ok(0));
}

#[test]
fn outcomes_that_lie_are_invalid_output() {
    let cases = [
        ("an unknown case", "discriminant", "
            (i32.store (i32.const 64) (i32.const 128)) (i32.store (i32.const 68) (i32.const 1))
            (i32.store8 (i32.const 128) (i32.const 99)) i32.const 64"),
        ("a list beyond the memory", "out of bounds", "
            (i32.store (i32.const 64) (i32.const 128)) (i32.store (i32.const 68) (i32.const 0x7fffff)) i32.const 64"),
        ("a length that overflows", "out of bounds", "
            (i32.store (i32.const 64) (i32.const 128)) (i32.store (i32.const 68) (i32.const -1)) i32.const 64"),
        ("a list at an odd address", "aligned", "
            (i32.store (i32.const 64) (i32.const 129)) (i32.store (i32.const 68) (i32.const 1)) i32.const 64"),
        ("an outcome beyond the memory", "out of bounds", "i32.const 0x7ffffff0"),
        ("an outcome at an odd address", "aligned", "i32.const 65"),
    ];
    for (what, words, reconcile) in cases {
        let error = Module { reconcile, ..HONEST }.call().unwrap_err();
        assert_eq!(error.reason(), "InvalidOutput", "{what}: {error}");
        assert!(error.to_string().contains(words), "{what}: {error}");
    }
}

#[test]
fn an_allocator_that_lies_is_found_out() {
    for (what, realloc, reason) in [
        ("beyond the memory", "i32.const 0x7ffffff0", "InvalidOutput"),
        ("odd address", "i32.const 8193", "InvalidOutput"),
        ("trap", "unreachable", "Trap"),
        ("loop", "(loop br 0) unreachable", "CpuLimit"),
    ] {
        let error = Module { realloc, ..HONEST }.call().unwrap_err();
        assert_eq!(error.reason(), reason, "{what}: {error}");
    }
}

#[test]
fn tables_count_as_memory() {
    let grow = Module {
        items: "(table $t 1 funcref)",
        reconcile: "
            (loop
                (br_if 0 (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))))
            unreachable",
        ..HONEST
    };
    let error = grow.call().unwrap_err();
    assert_eq!(error, CallError::MemoryLimit { limit_bytes: 64 << 20, shared: false });
}

#[test]
fn recursion_ends_at_the_stack_limit() {
    let recurse = Module {
        items: "(func $deeper (param i32) (result i32)
            (i32.add (call $deeper (i32.add (local.get 0) (i32.const 1))) (local.get 0)))",
        reconcile: "(call $deeper (i32.const 0))",
        ..HONEST
    };
    let error = recurse.call().unwrap_err();
    assert_eq!(error.reason(), "Trap");
    assert!(error.to_string().contains("call stack exhausted"), "{error}");
}

#[test]
fn a_module_that_never_starts_fails_to_describe_itself() {
    let sandbox = sandbox();
    let start = "(func $s (loop br 0)) (start $s)";
    let error = Module { items: start, ..HONEST }.prepare(&sandbox).unwrap_err();
    assert!(matches!(error, PrepareError::Describe(CallError::CpuLimit { .. })), "{error}");

    let error = Module { pages: 2000, ..HONEST }.prepare(&sandbox).unwrap_err();
    assert!(matches!(error, PrepareError::Describe(CallError::MemoryLimit { .. })), "{error}");
}

#[test]
fn what_the_pool_has_not_is_refused_before_the_first_call() {
    let sandbox = sandbox();
    for (what, items) in [
        ("2 memories", "(memory $second 1)"),
        (
            "5 tables",
            "(table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref)",
        ),
        ("100000 elements in a table", "(table 100000 funcref)"),
    ] {
        let error = Module { items, ..HONEST }.prepare(&sandbox).unwrap_err();
        assert!(error.to_string().starts_with(&format!("needs {what}, at most")), "{error}");
        assert_eq!(error.reason(), "TooLarge");
    }
}
