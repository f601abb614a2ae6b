//! From bytes to something that can be called: inspect, compile or take from the cache, map, link, describe.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use pilothouse_model::manifest::Manifest;
use pilothouse_model::names::Digest;
use rustix::fs::MemfdFlags;
use wasmtime::Engine;
use wasmtime::component::{Component, InstancePre};

use crate::bindings::v0_1::PluginPre;
use crate::bindings::v0_1::further::exports::pilothouse::operator::{admission, conversion};
use crate::call::CallState;
use crate::engine::{MEMORIES_MAX, TABLES_MAX};
use crate::error::PrepareError;
use crate::inspect::{ADMISSION, CONVERSION, Inspection, check_count};
use crate::turns::Lane;

/// A plugin that can be called. Costs its metadata only: the code is mapped from its file, and no instance is kept.
pub struct Prepared {
    pub(crate) pre: PluginPre<CallState>,
    pub(crate) further: Further,
    pub(crate) lane: Arc<Lane>,
    /// Calls of the API server queue apart from passes, so that a flood of either does not hold up the other.
    pub(crate) webhook_lane: Arc<Lane>,
    digest: Digest,
    manifest: Manifest,
    inspection: Inspection,
    wasm_bytes: u64,
    compiled_bytes: u64,
    from_cache: bool,
}

impl Prepared {
    /// Of the component, uncompressed.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What it said of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// For example `0.1.0`.
    pub fn contract_version(&self) -> &'static str {
        self.inspection.contract_version
    }

    /// Names of what it imports.
    pub fn imports(&self) -> &[String] {
        &self.inspection.imports
    }

    /// Names of what it exports.
    pub fn exports(&self) -> &[String] {
        &self.inspection.exports
    }

    /// Whether it checks and completes objects.
    pub fn admits(&self) -> bool {
        self.further.admission.is_some()
    }

    /// Whether it converts between versions.
    pub fn converts(&self) -> bool {
        self.further.conversion.is_some()
    }

    /// Size of the component, uncompressed.
    pub fn wasm_bytes(&self) -> u64 {
        self.wasm_bytes
    }

    /// Size of its compiled code.
    pub fn compiled_bytes(&self) -> u64 {
        self.compiled_bytes
    }

    /// True if it did not have to be compiled.
    pub fn from_cache(&self) -> bool {
        self.from_cache
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("name", &self.manifest.name)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

/// A component that is linked and has not been asked for its manifest yet.
pub(crate) struct Linked {
    pub(crate) pre: PluginPre<CallState>,
    pub(crate) further: Further,
    pub(crate) digest: Digest,
    pub(crate) inspection: Inspection,
    pub(crate) wasm_bytes: u64,
    pub(crate) compiled_bytes: u64,
    pub(crate) from_cache: bool,
}

impl Linked {
    pub(crate) fn described(self, manifest: Manifest) -> Prepared {
        let Self { pre, further, digest, inspection, wasm_bytes, compiled_bytes, from_cache } = self;
        Prepared {
            pre,
            further,
            lane: Arc::default(),
            webhook_lane: Arc::default(),
            digest,
            manifest,
            inspection,
            wasm_bytes,
            compiled_bytes,
            from_cache,
        }
    }
}

/// Where the exports are that not every plugin has.
pub(crate) struct Further {
    pub(crate) admission: Option<admission::GuestIndices>,
    pub(crate) conversion: Option<conversion::GuestIndices>,
}

/// Compiled code in a file without a name, for a host without a cache.
pub(crate) fn anonymous(code: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("pilothouse-code", MemfdFlags::CLOEXEC)?);
    file.write_all(code)?;
    file.rewind()?;
    Ok(file)
}

/// Maps compiled code. Pages are shared with the file until somebody writes them, which nobody does: an idle plugin's
/// code costs page cache, not private memory.
#[allow(unsafe_code, reason = "the one audited exception: native code has to be mapped; see SAFETY")]
pub(crate) fn map(engine: &Engine, code: &File) -> Result<Component, PrepareError> {
    // wasmtime opens files by path; this is the path of the very file that was verified, whatever its name is now.
    let path = format!("/proc/self/fd/{}", code.as_raw_fd());
    // SAFETY: the bytes must be what `Engine::precompile_component` made, and must not change while they are mapped.
    // They come from our own compiler, in this process or in the child, and either never left memory or come out of
    // `Cache`: a directory that this user owns and nobody else may enter, content verified by digest on this open
    // file, written once under another name and never changed. Code of another wasmtime, other settings or another
    // processor is refused by wasmtime's own header check.
    let component = unsafe { Component::deserialize_file(engine, &path) };
    component.map_err(|error| PrepareError::Map(format!("{error:#}")))
}

/// What instances need of the pool, as a component may make several of one module.
pub(crate) fn check_resources(component: &Component) -> Result<(), PrepareError> {
    let Some(needed) = component.resources_required() else {
        // It imports a module or a component, which `inspect` refuses.
        return Ok(());
    };
    check_count("memories", needed.num_memories.into(), MEMORIES_MAX.into())?;
    check_count("tables", needed.num_tables.into(), TABLES_MAX.into())
}

/// Looks the contract's exports up, once for all calls.
pub(crate) fn bind(
    pre: InstancePre<CallState>,
    inspection: &Inspection,
) -> Result<(PluginPre<CallState>, Further), PrepareError> {
    let contract = |error: wasmtime::Error| PrepareError::Contract(format!("{error:#}"));
    let admission = inspection.has_export(ADMISSION).then(|| admission::GuestIndices::new(&pre));
    let conversion = inspection.has_export(CONVERSION).then(|| conversion::GuestIndices::new(&pre));
    let further = Further {
        admission: admission.transpose().map_err(contract)?,
        conversion: conversion.transpose().map_err(contract)?,
    };
    Ok((PluginPre::new(pre).map_err(contract)?, further))
}
