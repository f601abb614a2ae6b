//! Builds the guests of the tests into components, once, whoever asks first: tests of several packages need them, and
//! Cargo builds no package for another target on behalf of a dependency.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use wit_component::ComponentEncoder;

/// What a guest is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// No WASI: what the SDK recommends.
    Unknown,
    /// With WASI, through the adapter that `cargo component` uses.
    Wasi,
}

impl Target {
    fn triple(self) -> &'static str {
        match self {
            Self::Unknown => "wasm32-unknown-unknown",
            Self::Wasi => "wasm32-wasip1",
        }
    }
}

/// A plugin that misbehaves as `spec.behaviour` says; kind `Hostile.v1.test.pilothouse.dev`, resource `hostiles`.
pub fn hostile() -> &'static [u8] {
    static COMPONENT: OnceLock<Vec<u8>> = OnceLock::new();
    COMPONENT.get_or_init(|| component("hostile", Target::Unknown))
}

/// [`hostile`] whose `describe` does something else: `loops`, `traps`, `lies`, `babbles` or `floods`.
pub fn hostile_describing(behaviour: &str) -> Vec<u8> {
    overwrite(hostile(), b"describe=honest.................", &format!("describe={behaviour}"))
}

/// A plugin that makes one ConfigMap for each object of a kind of its own, `KIND.v1.test.pilothouse.dev`, resource
/// `kinds`, with `text` (of the object's spec), `version` and `config` in its data.
#[derive(Debug, Clone, Copy)]
pub struct Stamp<'a> {
    /// In the manifest.
    pub name: &'a str,
    /// CamelCase.
    pub kind: &'a str,
    /// In the manifest, in a column of the CRD, and in each ConfigMap.
    pub version: &'a str,
    /// Services are among the children, too, though none is made.
    pub wide: bool,
}

impl Stamp<'_> {
    /// The plugin as a component.
    pub fn component(&self) -> Vec<u8> {
        const PLACE: &[u8; 96] =
            b"identity=stamp Stamp 0 narrow...................................................................";
        static COMPONENT: OnceLock<Vec<u8>> = OnceLock::new();
        let Self { name, kind, version, wide } = self;
        let width = if *wide { "wide" } else { "narrow" };
        let uncut = COMPONENT.get_or_init(|| component("stamp", Target::Unknown));
        overwrite(uncut, PLACE, &format!("identity={name} {kind} {version} {width}"))
    }
}

/// A plugin that does what the spec of its object says, as the guest's module documentation puts it; kind
/// `KIND.v1.test.pilothouse.dev`, resource `kinds`.
#[derive(Debug, Clone)]
pub struct Scripted<'a> {
    /// In the manifest.
    pub name: &'a str,
    /// CamelCase.
    pub kind: &'a str,
    /// In the manifest; the spec may ask for it.
    pub version: &'a str,
    /// An object with any of `controller` (fields that replace those of the manifest's only controller),
    /// `moreChildren`, `scope`, `statusSubresource` and `crds`.
    pub manifest: Value,
}

impl Scripted<'_> {
    /// The plugin as a component.
    pub fn component(&self) -> Vec<u8> {
        static COMPONENT: OnceLock<Vec<u8>> = OnceLock::new();
        let mut place = b"script=".to_vec();
        place.resize(4096, b'.');
        let Self { name, kind, version, manifest } = self;
        let mut told = json!({ "name": name, "kind": kind, "version": version });
        for (field, value) in manifest.as_object().into_iter().flatten() {
            told[field] = value.clone();
        }
        let uncut = COMPONENT.get_or_init(|| component("scripted", Target::Unknown));
        overwrite(uncut, &place, &format!("script={told}"))
    }
}

/// The component with `told`, padded with dots, wherever it has `place`.
fn overwrite(component: &[u8], place: &[u8], told: &str) -> Vec<u8> {
    assert!(told.len() <= place.len(), "{told} is too long, {} bytes would be right", place.len());
    let mut told = told.as_bytes().to_vec();
    told.resize(place.len(), b'.');
    let windows = component.windows(place.len()).enumerate();
    let places: Vec<usize> = windows.filter(|(_, part)| *part == place).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the guest lacks {}", String::from_utf8_lossy(place));
    let mut component = component.to_vec();
    for at in places {
        component[at..at + told.len()].copy_from_slice(&told);
    }
    component
}

/// A plugin that makes five ConfigMaps for each object.
pub fn steady() -> &'static [u8] {
    static COMPONENT: OnceLock<Vec<u8>> = OnceLock::new();
    COMPONENT.get_or_init(|| component("steady", Target::Unknown))
}

/// A plugin that reaches for everything that WASI has.
pub fn wasi_probe() -> &'static [u8] {
    static COMPONENT: OnceLock<Vec<u8>> = OnceLock::new();
    COMPONENT.get_or_init(|| component("wasi-probe", Target::Wasi))
}

/// A component that was made of another language, by its path in the target directory: `guests/probe-python.wasm`.
/// Cargo cannot build it; an error says who can.
pub fn foreign(path: &str) -> Result<Vec<u8>> {
    let path = target_directory().join(path);
    fs::read(&path).with_context(|| {
        format!("{}: `make plugins-python plugins-javascript plugins-go` builds it", path.display())
    })
}

/// A directory for compiled code that outlives the test: components of other languages take seconds to compile.
pub fn code_cache() -> PathBuf {
    target_directory().join("cache/pilothouse/compiled")
}

/// The same component with another digest, as if it were another version.
pub fn variant(component: &[u8], number: u32) -> Vec<u8> {
    let data = number.to_le_bytes();
    let section = wasm_encoder::CustomSection { name: "variant".into(), data: data.as_slice().into() };
    let mut variant = component.to_vec();
    wasm_encoder::ComponentSection::append_to_component(&section, &mut variant);
    variant
}

/// The component of a package of this workspace. Panics if it cannot be built, which is a failed test.
pub fn component(package: &str, target: Target) -> Vec<u8> {
    fs::read(component_file(package, target).unwrap_or_else(|error| panic!("guest `{package}`: {error:#}")))
        .unwrap_or_else(|error| panic!("guest `{package}`: {error}"))
}

/// Where the component of a package lies, after building it if it is not up to date.
pub fn component_file(package: &str, target: Target) -> Result<PathBuf> {
    let directory = target_directory().join("guests");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    // One at a time over all test processes, so that none reads what another is writing.
    let lock = File::create(directory.join(".lock")).context("cannot make a lock file")?;
    flock(&lock, FlockOperation::LockExclusive).context("cannot lock")?;

    let module = build(package, target)?;
    let core = fs::read(&module).with_context(|| module.display().to_string())?;
    let suffix = if target == Target::Wasi { "-wasi" } else { "" };
    let path = directory.join(format!("{package}{suffix}.wasm"));
    let component =
        wrap(&core, target).with_context(|| format!("{} makes no component", module.display()))?;
    fs::write(&path, component).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// A component from the text of a core module without a world: for what no compiler would emit.
pub fn assemble(module: &str) -> Result<Vec<u8>> {
    let mut core = wat::parse_str(module)?;
    let mut resolve = wit_parser::Resolve::default();
    let (package, _) = resolve.push_dir(root().join("wit"))?;
    let world = resolve.select_world(&[package], Some("plugin"))?;
    let encoding = wit_component::StringEncoding::UTF8;
    wit_component::embed_component_metadata(&mut core, &resolve, world, encoding, false)?;
    wrap(&core, Target::Unknown)
}

/// A component from a core module that carries its world.
pub fn wrap(core: &[u8], target: Target) -> Result<Vec<u8>> {
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true).module(core)?;
    if target == Target::Wasi {
        use wasi_preview1_component_adapter_provider as provider;
        let name = provider::WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME;
        encoder.adapter(name, provider::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?;
    }
    encoder.encode()
}

fn build(package: &str, target: Target) -> Result<PathBuf> {
    let directory = target_directory();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--profile", "guest", "--target", target.triple(), "--package", package])
        .arg("--target-dir")
        .arg(&directory)
        .current_dir(root());
    // What Cargo sets for a running test is meant for that test's package.
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo failed ({status}); is the target there? `rustup target add {}`", target.triple());
    }
    let file = format!("{}.wasm", package.replace('-', "_"));
    Ok(directory.join(target.triple()).join("guest").join(file))
}

fn root() -> &'static Path {
    // …/tests/guests/build
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(3).unwrap_or(here)
}

/// Cargo's target directory: that of the running test, else `CARGO_TARGET_DIR`, else `target` in the workspace.
fn target_directory() -> PathBuf {
    let running = env::current_exe().ok().and_then(|path| {
        let profile = path.ancestors().find(|directory| directory.ends_with("release"))?;
        profile.parent().map(Path::to_owned)
    });
    let set = || env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    running.or_else(set).unwrap_or_else(|| root().join("target"))
}
