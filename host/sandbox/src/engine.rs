//! The engine's configuration: what compiled code looks like, and what memory is kept ready for calls.
//!
//! Two engines are made from it, in different processes: the host's, with an instance pool, and the compiler child's,
//! without. Everything that shapes the code is set in [`code`], for both alike; the host's engine refuses code of
//! another shape when it is loaded.

use std::hash::{DefaultHasher, Hash, Hasher};

use pilothouse_model::limits::Limits;
use wasmtime::{Config, Enabled, Engine, PoolingAllocationConfig};

use crate::error::SandboxError;

/// Stack of a guest, bytes. Deep recursion traps there; rustc's default for Wasm is 1 MiB of shadow stack in linear
/// memory, which is another one.
pub(crate) const WASM_STACK_BYTES: usize = 512 << 10;
/// Memories of one component. More than one is what composed components have.
pub(crate) const MEMORIES_MAX: u32 = 1;
/// Tables of one component: its own, and those of adapters.
pub(crate) const TABLES_MAX: u32 = 4;
/// Core instances of one component; componentize-py makes some fifty.
const CORE_INSTANCES_MAX: u32 = 128;
/// Elements of one table, 8 bytes each; an interpreter has some ten thousand functions.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 1 << 16;
/// Address space of a memory. Compiled code needs no bounds checks when a 32-bit address cannot leave it.
const MEMORY_RESERVATION_BYTES: u64 = 4 << 30;
/// Of the memory of a slot that a call has used so much stays for the next one: its page faults cost a plugin in Rust a
/// tenth of a pass. More than that, an interpreter's, goes back.
const MEMORY_BYTES_KEPT: usize = 1 << 20;
/// The same for each table: those of a plugin in Rust fit into one page.
const TABLE_BYTES_KEPT: usize = 16 << 10;
/// Slots that may keep memory: with the number above, what an idle host keeps for its calls.
const WARM_SLOTS_MAX: u32 = 4;
/// Frames of a trap's trace, of which one is shown: the innermost that is the plugin's own.
const BACKTRACE_FRAMES_MAX: usize = 16;

/// What shapes compiled code.
fn code() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .memory_reservation(MEMORY_RESERVATION_BYTES)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(BACKTRACE_FRAMES_MAX))
        // The same request gives the same actions on every machine: no bits of a NaN, no choice of the hardware.
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        // Its code would need a bounds check for each access, and no plugin needs 4 GiB.
        .wasm_memory64(false)
        // For native debuggers and line numbers. They would be half of each idle plugin's memory.
        .native_unwind_info(false)
        .generate_address_map(false);
    config
}

/// The compiler child's engine: no pool, so that it fits into the child's address space limit.
pub(crate) fn compiler() -> wasmtime::Result<Engine> {
    Engine::new(&code())
}

/// The host's engine, with a pool for `slots` started calls.
///
/// The pool reserves 4 GiB of address space for each slot (27 slots on two cores: 108 GiB of the 128 TiB that a
/// process has) and no memory. So a plugin whose memory limit is raised to the largest allowed needs no other pool:
/// the limit is kept by [`crate::budget::MemoryBudget`] alone.
pub(crate) fn host(slots: u32) -> Result<Engine, SandboxError> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots * CORE_INSTANCES_MAX)
        .total_memories(slots * MEMORIES_MAX)
        .total_tables(slots * TABLES_MAX)
        .max_core_instances_per_component(CORE_INSTANCES_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        .max_tables_per_module(TABLES_MAX)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_memory_size(usize::try_from(Limits::MEMORY_BYTES_MAX).unwrap_or(usize::MAX))
        .linear_memory_keep_resident(MEMORY_BYTES_KEPT)
        .table_keep_resident(TABLE_BYTES_KEPT)
        .pagemap_scan(Enabled::Auto)
        .max_unused_warm_slots(WARM_SLOTS_MAX);
    let mut config = code();
    config.allocation_strategy(pool);
    Engine::new(&config).map_err(|error| SandboxError::Engine { slots, reason: format!("{error:#}") })
}

/// Names this engine's kind of code in the cache: wasmtime's version, the settings above, the processor's features.
pub(crate) fn compatibility(engine: &Engine) -> String {
    // The standard hasher's keys are fixed, and a release that changes it only makes the cache compile again.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
