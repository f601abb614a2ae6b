//! The compiler child and the cache, with the program in `examples/compile.rs` as the child.

use std::fs;
use std::path::{Path, PathBuf};

use pilothouse_model::limits::Limits;
use pilothouse_sandbox::{CompileError, CompileLimits, Compiler, PrepareError, Sandbox, SandboxOptions};

/// Cargo builds it along with this test: …/release/examples/compile beside …/release/deps/sandbox-….
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples/compile");
    assert!(program.exists(), "{} is missing: `cargo build --release --examples`", program.display());
    program
}

fn child(limits: CompileLimits) -> Compiler {
    Compiler::Child { program: program(), arguments: Vec::new(), limits }
}

fn shell(script: &str, limits: CompileLimits) -> Compiler {
    Compiler::Child { program: "/bin/sh".into(), arguments: vec!["-c".to_owned(), script.to_owned()], limits }
}

fn sandbox(compiler: Compiler, cache: Option<&Path>) -> Sandbox {
    let options = SandboxOptions { cache_dir: cache.map(Path::to_owned), ..SandboxOptions::new(compiler) };
    Sandbox::new(options).unwrap()
}

fn failure(compiler: Compiler) -> CompileError {
    match sandbox(compiler, None).prepare(pilothouse_guests::steady(), &Limits::default()) {
        Err(PrepareError::Compile(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn entries(cache: &Path) -> Vec<PathBuf> {
    fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_child_compiles_and_the_next_sandbox_finds_the_code() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("code");
    let prepare = || {
        let sandbox = sandbox(child(CompileLimits::default()), Some(&cache));
        sandbox.prepare(pilothouse_guests::steady(), &Limits::default()).unwrap()
    };
    assert!(!prepare().from_cache());
    let second = prepare();
    assert!(second.from_cache());
    assert_eq!(entries(&cache).len(), 1);
    assert_eq!(fs::metadata(&entries(&cache)[0]).unwrap().len(), second.compiled_bytes());
}

#[test]
fn damaged_and_foreign_code_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("code");
    let sandbox = sandbox(Compiler::InProcess, Some(&cache));
    let prepare = || sandbox.prepare(pilothouse_guests::steady(), &Limits::default()).unwrap();
    assert!(!prepare().from_cache());
    let entry = entries(&cache).remove(0);

    let mut code = fs::read(&entry).unwrap();
    let middle = code.len() / 2;
    code[middle] ^= 1;
    fs::remove_file(&entry).unwrap();
    fs::write(&entry, &code).unwrap();
    assert!(!prepare().from_cache(), "damaged code was used");

    // What is no code at all, under a name that says so truly.
    let name = entry.file_name().unwrap().to_str().unwrap();
    let (prefix, _) = name.rsplit_once('-').unwrap();
    let foreign = pilothouse_model::names::Digest::of(b"foreign").hex();
    fs::remove_file(&entry).unwrap();
    fs::write(cache.join(format!("{prefix}-{foreign}.code")), b"foreign").unwrap();
    assert!(!prepare().from_cache(), "foreign code was used");
    assert!(prepare().from_cache());
    assert_eq!(entries(&cache), [entry]);
}

#[test]
fn a_child_that_needs_too_much_is_ended() {
    let limits = CompileLimits::default();
    let error = failure(child(CompileLimits { memory_bytes: 16 << 20, ..limits }));
    assert!(matches!(error, CompileError::Died { .. }), "{error}");

    let error = failure(shell("while :; do :; done", CompileLimits { cpu_seconds: 1, ..limits }));
    assert_eq!(error, CompileError::Time { what: "CPU time", seconds: 1 });

    let error = failure(shell("exec sleep 600", CompileLimits { wall_seconds: 1, ..limits }));
    assert_eq!(error, CompileError::Time { what: "wall time", seconds: 1 });

    let error = failure(shell("exec cat /dev/zero", limits));
    assert_eq!(error, CompileError::TooLarge);
}

#[test]
fn what_a_child_says_is_passed_on() {
    let limits = CompileLimits::default();
    let error = failure(shell("cat >/dev/null; echo 'not today' >&2; exit 1", limits));
    assert_eq!(error, CompileError::Refused("not today".to_owned()));

    let error =
        failure(Compiler::Child { program: "/nowhere/compiler".into(), arguments: Vec::new(), limits });
    assert!(error.to_string().starts_with("cannot run the compiler /nowhere/compiler: "), "{error}");

    let error = failure(shell("kill -SEGV $$", limits));
    assert!(error.to_string().contains("SIGSEGV"), "{error}");
}

#[test]
fn nonsense_from_a_child_is_neither_mapped_nor_kept() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("code");
    let sandbox = sandbox(shell("exec cat", CompileLimits::default()), Some(&cache));
    let error = sandbox.prepare(pilothouse_guests::steady(), &Limits::default()).unwrap_err();
    assert_eq!(error.reason(), "HostFault", "{error}");
    assert!(entries(&cache).is_empty());
}
