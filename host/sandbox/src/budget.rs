//! Memory of one call, summed over everything that its instance may grow, and of all calls together.
//!
//! A refusal is recorded: a guest that is denied memory mostly traps right after it, and the pass must say
//! "memory" then, not "trap".

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wasmtime::ResourceLimiter;

/// Host bytes for each element of a table.
const TABLE_ELEMENT_BYTES: u64 = 8;

/// What all calls together may use: keeps a crowd of plugins, each within its limit, from having the host killed.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    used_bytes: AtomicU64,
    max_bytes: u64,
}

impl SharedMemory {
    pub(crate) fn new(max_bytes: u64) -> Arc<Self> {
        Arc::new(Self { used_bytes: AtomicU64::new(0), max_bytes })
    }

    fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.max_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn used(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

/// Which limit refused growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The call's own.
    Own,
    /// That of all calls together.
    Shared,
}

/// Memory of one call. Gives back to [`SharedMemory`] when dropped.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    shared: Arc<SharedMemory>,
    limit_bytes: u64,
    used_bytes: u64,
    refused: Option<Refusal>,
}

impl MemoryBudget {
    pub(crate) fn new(shared: Arc<SharedMemory>, limit_bytes: u64) -> Self {
        Self { shared, limit_bytes, used_bytes: 0, refused: None }
    }

    /// Bytes in use. Memory of Wasm never shrinks, so this is also the peak.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The first refusal.
    pub(crate) fn refused(&self) -> Option<Refusal> {
        self.refused
    }

    /// The limit that [`Refusal`] speaks of.
    pub(crate) fn limit_bytes(&self, refusal: Refusal) -> u64 {
        match refusal {
            Refusal::Own => self.limit_bytes,
            Refusal::Shared => self.shared.max_bytes,
        }
    }

    fn grow(&mut self, bytes: u64) -> bool {
        let refusal = match self.used_bytes.checked_add(bytes) {
            Some(sum) if sum <= self.limit_bytes => {
                if self.shared.take(bytes) {
                    self.used_bytes = sum;
                    return true;
                }
                Refusal::Shared
            }
            _ => Refusal::Own,
        };
        self.refused.get_or_insert(refusal);
        false
    }
}

impl Drop for MemoryBudget {
    fn drop(&mut self) {
        self.shared.give_back(self.used_bytes);
    }
}

/// Also asked for what an instance begins with, with a `current` of 0.
impl ResourceLimiter for MemoryBudget {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current) as u64))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow((desired.saturating_sub(current) as u64).saturating_mul(TABLE_ELEMENT_BYTES)))
    }

    /// Growth within the budget that the pool refused, as a table may be full before the memory is.
    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused.get_or_insert(Refusal::Own);
        Ok(())
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused.get_or_insert(Refusal::Own);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 64 << 10;

    #[test]
    fn memories_and_tables_are_summed_and_the_first_refusal_is_kept() {
        let shared = SharedMemory::new(u64::MAX);
        let mut budget = MemoryBudget::new(Arc::clone(&shared), 3 * PAGE as u64);
        assert!(budget.memory_growing(0, PAGE, None).unwrap());
        assert!(budget.memory_growing(0, PAGE, None).unwrap(), "a second memory");
        assert!(budget.table_growing(0, PAGE / 8, None).unwrap(), "a table of one page");
        assert_eq!(budget.refused(), None);
        assert!(!budget.memory_growing(PAGE, 2 * PAGE, None).unwrap());
        assert_eq!(budget.refused(), Some(Refusal::Own));
        assert_eq!(budget.peak_bytes(), 3 * PAGE as u64, "a refusal takes nothing");
    }

    #[test]
    fn what_all_calls_use_is_bounded_and_given_back() {
        let shared = SharedMemory::new(2 * PAGE as u64);
        let mut one = MemoryBudget::new(Arc::clone(&shared), u64::MAX);
        let mut other = MemoryBudget::new(Arc::clone(&shared), u64::MAX);
        assert!(one.memory_growing(0, 2 * PAGE, None).unwrap());
        assert!(!other.memory_growing(0, PAGE, None).unwrap());
        assert_eq!(other.refused(), Some(Refusal::Shared));
        drop(one);
        assert!(other.memory_growing(0, PAGE, None).unwrap());
        drop(other);
        assert_eq!(shared.used(), 0);
    }

    #[test]
    fn absurd_sizes_are_refused_without_overflow() {
        let mut budget = MemoryBudget::new(SharedMemory::new(u64::MAX), 1 << 20);
        assert!(budget.memory_growing(0, PAGE, None).unwrap());
        assert!(!budget.memory_growing(0, usize::MAX, None).unwrap());
        assert!(!budget.table_growing(0, usize::MAX, None).unwrap());
    }
}
