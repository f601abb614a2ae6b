//! Series that end with whoever counts in them.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// One metric of a family. The series ends when this is dropped.
#[derive(Debug)]
pub(super) struct Series<L: Label, M> {
    family: Family<L, M, fn() -> M>,
    label: L,
    metric: M,
}

/// What label sets are.
pub(super) trait Label: EncodeLabelSet + Clone + Hash + Eq {}
impl<T: EncodeLabelSet + Clone + Hash + Eq> Label for T {}

impl<L: Label, M: Clone> Series<L, M> {
    pub(super) fn new(family: &Family<L, M, fn() -> M>, label: L) -> Self {
        let metric = family.get_or_create_owned(&label);
        Self { family: family.clone(), label, metric }
    }
}

impl<L: Label, M> Deref for Series<L, M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.metric
    }
}

impl<L: Label, M> Drop for Series<L, M> {
    fn drop(&mut self) {
        self.family.remove(&self.label);
    }
}

/// Counters that differ in one word of a closed list, each made when it first counts.
pub(super) struct Words<L: Label> {
    family: Family<L, Counter, fn() -> Counter>,
    label: Box<dyn Fn(&'static str) -> L + Send + Sync>,
    counters: Mutex<BTreeMap<&'static str, Series<L, Counter>>>,
}

impl<L: Label> Words<L> {
    pub(super) fn new(
        family: &Family<L, Counter, fn() -> Counter>,
        label: impl Fn(&'static str) -> L + Send + Sync + 'static,
    ) -> Self {
        Self { family: family.clone(), label: Box::new(label), counters: Mutex::default() }
    }

    pub(super) fn count(&self, word: &'static str) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Series::new(&self.family, (self.label)(word));
        counters.entry(word).or_insert_with(new).inc();
    }
}
