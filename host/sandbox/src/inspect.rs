//! What a component imports and exports, read from its own sections before anything is compiled or linked: an
//! unfit component costs neither, and gets an answer in the words of the contract rather than of a linker.

use wasmparser::{Encoding, Parser, Payload};

use crate::engine::{MEMORIES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX};
use crate::error::PrepareError;

/// The contract version that this host knows.
pub const CONTRACT_VERSION: &str = "0.1.0";
/// Every plugin exports it. Compared as a whole: what looks compatible by its number need not be, as records and
/// variants cannot grow.
pub const RECONCILER: &str = "pilothouse:operator/reconciler@0.1.0";
/// Exported by plugins that check or complete objects before they are stored.
pub const ADMISSION: &str = "pilothouse:operator/admission@0.1.0";
/// Exported by plugins that convert between versions of a kind.
pub const CONVERSION: &str = "pilothouse:operator/conversion@0.1.0";
/// What a plugin may import.
pub const LOG: &str = "pilothouse:operator/log@0.1.0";
/// Types only: nothing to call.
const TYPES: &str = "pilothouse:operator/types@0.1.0";
/// All interfaces of the contract begin with it.
const CONTRACT: &str = "pilothouse:operator/";

/// Names at a component's border.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Contract version of its exports.
    pub contract_version: &'static str,
    /// In the component's order.
    pub imports: Vec<String>,
    /// In the component's order.
    pub exports: Vec<String>,
}

impl Inspection {
    /// True if it exports this interface.
    pub fn has_export(&self, interface: &str) -> bool {
        self.exports.iter().any(|name| name == interface)
    }

    /// True if it imports anything of WASI.
    pub fn needs_wasi(&self) -> bool {
        self.imports.iter().any(|name| name.starts_with("wasi:"))
    }
}

/// Reads the border of a component and says whether this host can serve it.
pub fn inspect(wasm: &[u8]) -> Result<Inspection, PrepareError> {
    let Border { imports, exports, memories, tables } = border(wasm)?;

    for name in imports.iter().chain(&exports) {
        if let Some(found) = foreign_version(name) {
            return Err(PrepareError::ContractVersion { name: name.clone(), found: found.to_owned() });
        }
    }
    if !exports.iter().any(|name| name == RECONCILER) {
        return Err(PrepareError::NotAPlugin { exports });
    }
    if let Some(name) = imports.iter().find(|name| !is_offered(name)) {
        return Err(PrepareError::ForeignImport(name.clone()));
    }
    check_count("memories", memories, MEMORIES_MAX.into())?;
    check_count("tables", tables.len() as u64, TABLES_MAX.into())?;
    for elements in tables {
        check_count("elements in a table", elements, TABLE_ELEMENTS_MAX as u64)?;
    }
    Ok(Inspection { contract_version: CONTRACT_VERSION, imports, exports })
}

/// Says in the contract's words what the instance pool would refuse.
pub(crate) fn check_count(what: &'static str, needed: u64, max: u64) -> Result<(), PrepareError> {
    if needed > max { Err(PrepareError::TooMany { what, needed, max }) } else { Ok(()) }
}

#[derive(Default)]
struct Border {
    imports: Vec<String>,
    exports: Vec<String>,
    /// Of all core modules.
    memories: u64,
    /// Of all core modules, each with its initial number of elements.
    tables: Vec<u64>,
}

/// Names that the outermost component imports and exports, and what its modules need of the pool.
fn border(wasm: &[u8]) -> Result<Border, PrepareError> {
    let malformed = |error: wasmparser::BinaryReaderError| PrepareError::NotWasm(error.to_string());
    let mut border = Border::default();
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(malformed)? {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                return Err(PrepareError::CoreModule);
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    border.imports.push(import.map_err(malformed)?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    border.exports.push(export.map_err(malformed)?.name.name.to_owned());
                }
            }
            Payload::MemorySection(section) => border.memories += u64::from(section.count()),
            Payload::TableSection(section) => {
                // More are refused anyway, whatever their number is.
                for table in section.into_iter().take(TABLES_MAX as usize + 1) {
                    border.tables.push(table.map_err(malformed)?.ty.initial);
                }
            }
            _ => {}
        }
    }
    Ok(border)
}

/// The version of a contract interface, if it is not ours.
fn foreign_version(name: &str) -> Option<&str> {
    let (_, version) = name.strip_prefix(CONTRACT)?.split_once('@')?;
    (version != CONTRACT_VERSION).then_some(version)
}

/// WASI 0.2 is offered whole: what is denied traps when it is called, as components of some languages import much
/// more than they use.
fn is_offered(name: &str) -> bool {
    let wasi = || {
        let interface = name.strip_prefix("wasi:")?;
        let (_, version) = interface.split_once('@')?;
        version.strip_prefix("0.2.")
    };
    name == LOG || name == TYPES || wasi().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_component_is_named_for_what_it_is() {
        let error = inspect(b"\0asm\x01\0\0\0").unwrap_err().to_string();
        assert!(error.starts_with("is a core module") && error.contains("cargo component build"), "{error}");
        for junk in [&b""[..], b"hello", b"\0asm", b"\x1f\x8b\x08\0"] {
            let error = inspect(junk).unwrap_err();
            assert_eq!(error.reason(), "NotAComponent", "{junk:?}: {error}");
        }
        let error = inspect(b"\0asm\x0d\0\x01\0").unwrap_err().to_string();
        assert_eq!(error, format!("is no plugin: it does not export `{RECONCILER}` (its exports: none)"));
    }

    #[test]
    fn versions_are_compared_as_a_whole() {
        assert_eq!(foreign_version(RECONCILER), None);
        assert_eq!(foreign_version("pilothouse:operator/reconciler@0.1.1"), Some("0.1.1"));
        assert_eq!(foreign_version("pilothouse:operator/log@1.0.0"), Some("1.0.0"));
        assert_eq!(foreign_version("wasi:cli/exit@0.2.3"), None);
    }

    #[test]
    fn log_and_wasi_0_2_are_offered_and_nothing_else() {
        for name in [LOG, TYPES, "wasi:cli/environment@0.2.0", "wasi:io/poll@0.2.12"] {
            assert!(is_offered(name), "{name}");
        }
        for name in ["wasi:cli/environment@0.3.0", "wasi:cli/environment", "acme:db/query@0.1.0", "run"] {
            assert!(!is_offered(name), "{name}");
        }
    }
}
