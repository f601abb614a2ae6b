//! Modules that import WASI 0.1, as Go's compiler makes them: they become components by the adapter that turns WASI 0.1
//! into WASI 0.2, and some preparation.
//!
//! The adapter needs memory, and takes it by the module's `cabi_realloc`. Go's runtime starts by asking WASI for its
//! arguments and for random bytes, so the adapter would call a function of Go before Go has started. Nor may it take
//! memory beyond Go's, as Go's allocator takes for granted that nobody else does. So the SDK for Go has an arena among its
//! data, which is found here by its first bytes, and the module gets a `cabi_realloc_adapter` that hands it out.

use anyhow::{Context as _, Result, bail, ensure};
use wasm_encoder::{
    BlockType, ConstExpr, Encode, ExportKind, Function, GlobalType, Module, RawSection, SectionId,
    TypeSection, ValType,
};
use wasmparser::{DataKind, ExternalKind, Operator, Parser, Payload, TypeRef};
use wit_component::StringEncoding;

/// What adapter and module call their interface.
pub(crate) const WASI: &str = "wasi_snapshot_preview1";
/// The module's allocator, for the host's values and, without the next one, for the adapter.
const REALLOC: &str = "cabi_realloc";
/// The allocator for the adapter alone.
const REALLOC_ADAPTER: &str = "cabi_realloc_adapter";
/// The first bytes of the arena, as `guest-sdk/go/memory_wasm.go` has them.
const ARENA: &[u8; 32] = b"pilothouse adapter arena 256 KiB";
/// As there. The adapter takes one page of 64 KiB for its state and one for its stack; a request beyond traps.
const ARENA_BYTES: i32 = 256 << 10;

/// What a module has, as far as it matters here.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    wasi: bool,
    world: bool,
    /// It allocates, but would not do so for the adapter.
    lacks_allocator: bool,
    types: u32,
    functions: u32,
    globals: u32,
    /// Address in the memory.
    arena: Option<i32>,
}

impl Contents {
    pub(crate) fn of(module: &[u8]) -> Result<Self> {
        let mut contents = Self::default();
        let (mut allocates, mut for_adapter) = (false, false);
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::TypeSection(section) => contents.types = section.count(),
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        contents.wasi |= import.module == WASI;
                        match import.ty {
                            TypeRef::Func(_) | TypeRef::FuncExact(_) => contents.functions += 1,
                            TypeRef::Global(_) => contents.globals += 1,
                            _ => {}
                        }
                    }
                }
                Payload::FunctionSection(section) => contents.functions += section.count(),
                Payload::GlobalSection(section) => contents.globals += section.count(),
                Payload::DataSection(section) => {
                    for data in section {
                        contents.arena = contents.arena.or(find_arena(&data?)?);
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if export.kind == ExternalKind::Func {
                            allocates |= export.name == REALLOC;
                            for_adapter |= export.name == REALLOC_ADAPTER;
                        }
                    }
                }
                Payload::CustomSection(section) => {
                    contents.world |= section.name().starts_with("component-type");
                }
                _ => {}
            }
        }
        contents.lacks_allocator = allocates && !for_adapter;
        Ok(contents)
    }

    /// Whether it needs the adapter.
    pub(crate) fn imports_wasi(&self) -> bool {
        self.wasi
    }

    /// The module with all that it lacks to become a plugin.
    pub(crate) fn complete(&self, module: &[u8]) -> Result<Vec<u8>> {
        let mut module = if self.lacks_allocator { self.with_allocator(module)? } else { module.to_vec() };
        if !self.world {
            let mut resolve = wit_parser::Resolve::default();
            let package = resolve.push_str("operator.wit", include_str!("../../../wit/operator.wit"))?;
            let world = resolve.select_world(&[package], Some("plugin"))?;
            wit_component::embed_component_metadata(
                &mut module,
                &resolve,
                world,
                StringEncoding::UTF8,
                false,
            )?;
        }
        Ok(module)
    }

    /// Copies all sections, five of which get one entry more, at their end: no index changes.
    fn with_allocator(&self, module: &[u8]) -> Result<Vec<u8>> {
        let first = self.arena.context("has no arena for the adapter: is it made with the SDK for Go?")?;
        ensure!(self.types > 0 && self.globals > 0, "has no type or no global section to add to");
        let mut made = Module::new();
        for payload in Parser::new(0).parse_all(module) {
            let payload = payload?;
            let Some((id, range)) = payload.as_section() else {
                if let Payload::ModuleSection { .. } = payload {
                    bail!("is a component");
                }
                continue;
            };
            let content = &module[usize::try_from(range.start)?..usize::try_from(range.end)?];
            let is = |section: SectionId| id == section as u8;
            let added = if is(SectionId::Type) {
                one_more(content, &realloc_type())?
            } else if is(SectionId::Function) {
                one_more(content, &encoded(&self.types))?
            } else if is(SectionId::Global) {
                one_more(content, &arena(first))?
            } else if is(SectionId::Export) {
                one_more(content, &self.export())?
            } else if is(SectionId::Code) {
                one_more(content, &encoded(&allocator(self.globals, first + ARENA_BYTES)))?
            } else {
                content.to_vec()
            };
            made.section(&RawSection { id, data: &added });
        }
        Ok(made.finish())
    }

    fn export(&self) -> Vec<u8> {
        let mut entry = encoded(REALLOC_ADAPTER);
        ExportKind::Func.encode(&mut entry);
        self.functions.encode(&mut entry);
        entry
    }
}

/// A section's content with one entry more.
fn one_more(content: &[u8], entry: &[u8]) -> Result<Vec<u8>> {
    let mut reader = wasmparser::BinaryReader::new(content, 0);
    let count = reader.read_var_u32()?;
    let mut section = encoded(&(count + 1));
    section.extend_from_slice(&content[usize::try_from(reader.original_position())?..]);
    section.extend_from_slice(entry);
    Ok(section)
}

/// `(old, old size, alignment, size) -> pointer`
fn realloc_type() -> Vec<u8> {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32; 4], [ValType::I32]);
    without_count(&types)
}

/// The address of the arena, if it begins in this segment.
fn find_arena(data: &wasmparser::Data<'_>) -> Result<Option<i32>> {
    let Some(position) = data.data.windows(ARENA.len()).position(|bytes| bytes == ARENA) else {
        return Ok(None);
    };
    let DataKind::Active { offset_expr, .. } = &data.kind else { bail!("its arena is not in its memory") };
    let mut offset = offset_expr.get_operators_reader();
    let Operator::I32Const { value } = offset.read()? else {
        bail!("the address of its arena is no constant")
    };
    Ok(Some(value + i32::try_from(position)?))
}

/// Where the rest of the arena begins.
fn arena(first: i32) -> Vec<u8> {
    let mut entry = Vec::new();
    GlobalType { val_type: ValType::I32, mutable: true, shared: false }.encode(&mut entry);
    ConstExpr::i32_const(first).encode(&mut entry);
    entry
}

/// Hands the arena out from its beginning and takes nothing back: the adapter keeps what it gets.
fn allocator(arena: u32, end: i32) -> Function {
    const ALIGNMENT: u32 = 2;
    const SIZE: u32 = 3;
    const BEGIN: u32 = 4;
    let mut function = Function::new([(1, ValType::I32)]);
    let mut code = function.instructions();
    // begin = (arena + alignment - 1) & -alignment
    code.global_get(arena).local_get(ALIGNMENT).i32_add().i32_const(1).i32_sub();
    code.i32_const(0).local_get(ALIGNMENT).i32_sub().i32_and().local_tee(BEGIN);
    // arena = begin + size
    code.local_get(SIZE).i32_add().global_set(arena);
    code.global_get(arena).i32_const(end).i32_gt_u().if_(BlockType::Empty).unreachable().end();
    code.local_get(BEGIN).end();
    function
}

/// The only entry of a section.
fn without_count(section: &impl Encode) -> Vec<u8> {
    let bytes = encoded(section);
    let mut reader = wasmparser::BinaryReader::new(&bytes, 0);
    // Size, then a count of one.
    let skipped =
        reader.read_var_u32().and_then(|_| reader.read_var_u32()).map(|_| reader.original_position());
    let skipped = skipped.ok().and_then(|position| usize::try_from(position).ok()).unwrap_or(0);
    bytes[skipped..].to_vec()
}

fn encoded<T: Encode + ?Sized>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module as Go would make it, as far as it matters here.
    const MODULE: &str = r#"(module
        (data (i32.const 1024) "abcpilothouse adapter arena 256 KiB")
        (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
        (memory (export "memory") 8)
        (global $g (mut i32) (i32.const 7))
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
        (func (export "_initialize") (drop (call $random (i32.const 0) (i32.const 8))))
        (func (export "pilothouse:operator/reconciler@0.1.0#describe") (result i32) (global.get $g))
        (func (export "pilothouse:operator/reconciler@0.1.0#reconcile")
            (param i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 0))
    )"#;

    #[test]
    fn the_arena_is_found_and_a_function_hands_it_out() {
        let module = wat::parse_str(MODULE).unwrap();
        let contents = Contents::of(&module).unwrap();
        assert!(contents.imports_wasi() && contents.lacks_allocator && !contents.world);
        let completed = contents.complete(&module).unwrap();
        wasmparser::validate(&completed).unwrap();
        let after = Contents::of(&completed).unwrap();
        assert!(!after.lacks_allocator && after.world);
        assert_eq!(after.arena, Some(1024 + 3));
        assert_eq!((after.functions, after.globals), (contents.functions + 1, contents.globals + 1));
    }

    #[test]
    fn it_becomes_a_component_of_the_contract() {
        let component = crate::wrap(&wat::parse_str(MODULE).unwrap()).unwrap();
        let printed = String::from_utf8_lossy(&component);
        assert!(
            printed.contains("pilothouse:operator/reconciler@0.1.0")
                && printed.contains("wasi:random/random@0.2")
        );
    }

    #[test]
    fn a_module_without_an_arena_is_told_what_made_it() {
        let module = wat::parse_str(MODULE.replace("adapter arena", "adapter-arena")).unwrap();
        let error = crate::wrap(&module).unwrap_err().to_string();
        assert!(error.contains("SDK for Go"), "{error}");
    }

    #[test]
    fn what_has_all_is_left_as_it_is() {
        let module = wat::parse_str(MODULE).unwrap();
        let completed = Contents::of(&module).unwrap().complete(&module).unwrap();
        assert_eq!(Contents::of(&completed).unwrap().complete(&completed).unwrap(), completed);
    }
}
