//! Which offered plugin serves: the rules, without bytes, wasm or tasks.
//!
//! - A plugin's name is its identity: a newer offer of the same name takes over, from wherever it comes.
//! - A kind has one plugin: another name for a kind that is served already has to wait.
//! - What waits is tried again whenever something leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_model::kind::Kind;
use pilothouse_model::names::{Generation, PluginName};

/// What the rules need to know of an offered plugin.
pub(crate) trait Offer {
    /// Where its bytes are.
    type Origin: Ord + Clone;

    /// Identity.
    fn name(&self) -> &PluginName;
    /// Primary kinds.
    fn kinds(&self) -> Vec<Kind>;
    /// Where its bytes are.
    fn origin(&self) -> &Self::Origin;
    /// Higher is newer.
    fn generation(&self) -> Generation;
}

/// Why an offer has to wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Waits {
    /// A kind of it is served by another plugin.
    #[error(
        "{kind} is served by plugin `{by}` already: unload that one, or give this one the same manifest.name"
    )]
    KindTaken {
        /// The kind.
        kind: Kind,
        /// Who serves it.
        by: PluginName,
    },
    /// A newer offer of the same name serves.
    #[error("plugin `{0}` is served by a newer version from another place")]
    Older(PluginName),
}

/// The offers, served and waiting.
pub(crate) struct Shelf<T: Offer> {
    live: BTreeMap<PluginName, Arc<T>>,
    waiting: BTreeMap<T::Origin, Arc<T>>,
}

impl<T: Offer> Shelf<T> {
    /// Nothing is offered yet.
    pub(crate) fn new() -> Self {
        Self { live: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    /// The plugins that serve.
    pub(crate) fn live(&self) -> &BTreeMap<PluginName, Arc<T>> {
        &self.live
    }

    /// A new offer, which replaces what its origin offered before if it can serve. If it cannot, that one goes on
    /// serving and the new one waits.
    pub(crate) fn offer(&mut self, plugin: Arc<T>) -> Result<(), Waits> {
        let origin = plugin.origin().clone();
        if let Err(waits) = self.may_serve(&plugin) {
            self.waiting.insert(origin, plugin);
            return Err(waits);
        }
        self.serve(plugin);
        self.try_waiting();
        Ok(())
    }

    /// An origin has nothing to offer any more.
    pub(crate) fn withdraw(&mut self, origin: &T::Origin) {
        self.waiting.remove(origin);
        self.live.retain(|_, plugin| plugin.origin() != origin);
        self.try_waiting();
    }

    fn may_serve(&self, plugin: &T) -> Result<(), Waits> {
        if let Some(same) = self.live.get(plugin.name())
            && same.generation() > plugin.generation()
        {
            return Err(Waits::Older(plugin.name().clone()));
        }
        for kind in plugin.kinds() {
            let taken = self.live.values().find(|other| {
                other.name() != plugin.name()
                    && other.origin() != plugin.origin()
                    && other.kinds().iter().any(|served| served.is_version_of(&kind))
            });
            if let Some(other) = taken {
                return Err(Waits::KindTaken { kind, by: other.name().clone() });
            }
        }
        Ok(())
    }

    fn serve(&mut self, plugin: Arc<T>) {
        let origin = plugin.origin().clone();
        self.waiting.remove(&origin);
        // The file may bear another plugin than before.
        self.live.retain(|name, other| other.origin() != &origin || name == plugin.name());
        if let Some(old) = self.live.insert(plugin.name().clone(), plugin)
            && old.origin() != &origin
        {
            // What its origin offered since, and could not serve yet, is newer.
            self.waiting.entry(old.origin().clone()).or_insert(old);
        }
    }

    /// Serves what can be served now, newest first.
    fn try_waiting(&mut self) {
        let mut waiting: Vec<Arc<T>> = self.waiting.values().cloned().collect();
        waiting.sort_by_key(|plugin| std::cmp::Reverse(plugin.generation()));
        for plugin in waiting {
            if self.may_serve(&plugin).is_ok() {
                self.serve(plugin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fake {
        name: PluginName,
        kinds: Vec<Kind>,
        origin: &'static str,
        generation: Generation,
    }

    impl Offer for Fake {
        type Origin = &'static str;

        fn name(&self) -> &PluginName {
            &self.name
        }
        fn kinds(&self) -> Vec<Kind> {
            self.kinds.clone()
        }
        fn origin(&self) -> &&'static str {
            &self.origin
        }
        fn generation(&self) -> Generation {
            self.generation
        }
    }

    fn fake(origin: &'static str, name: &str, kinds: &[&str], generation: u64) -> Arc<Fake> {
        let kinds = kinds.iter().map(|kind| Kind::new("example.com", "v1", kind)).collect();
        Arc::new(Fake { name: name.parse().unwrap(), kinds, origin, generation: Generation(generation) })
    }

    #[test]
    fn another_version_of_a_kind_is_the_same_kind() {
        let mut shelf = Shelf::new();
        shelf.offer(fake("a.wasm", "a", &["X"], 1)).unwrap();
        let other = Fake {
            name: "b".parse().unwrap(),
            kinds: vec![Kind::new("example.com", "v2", "X")],
            origin: "b.wasm",
            generation: Generation(2),
        };
        assert!(matches!(shelf.offer(Arc::new(other)), Err(Waits::KindTaken { .. })));
        assert_eq!(served(&shelf), [("a".to_owned(), 1)]);
    }

    #[test]
    fn falling_back_to_another_place_takes_the_newest_that_it_offered() {
        let mut shelf = Shelf::new();
        shelf.offer(fake("dir", "a", &["X"], 1)).unwrap();
        shelf.offer(fake("b.wasm", "b", &["Y"], 2)).unwrap();
        shelf.offer(fake("dir", "a", &["X", "Y"], 3)).unwrap_err();
        shelf.offer(fake("config map", "a", &["X"], 4)).unwrap();
        shelf.withdraw(&"b.wasm");
        shelf.withdraw(&"config map");
        assert_eq!(served(&shelf), [("a".to_owned(), 3)]);
    }

    fn served(shelf: &Shelf<Fake>) -> Vec<(String, u64)> {
        shelf.live().iter().map(|(name, plugin)| (name.to_string(), plugin.generation.0)).collect()
    }

    #[test]
    fn a_new_version_takes_over_and_another_name_for_the_kind_waits() {
        let mut shelf = Shelf::new();
        shelf.offer(fake("a.wasm", "a", &["X"], 1)).unwrap();
        shelf.offer(fake("a.wasm", "a", &["X"], 2)).unwrap();
        let waits = shelf.offer(fake("b.wasm", "b", &["Y", "X"], 3)).unwrap_err();
        assert_eq!(
            waits.to_string().split(':').next(),
            Some("X.v1.example.com is served by plugin `a` already")
        );
        assert_eq!(served(&shelf), [("a".to_owned(), 2)]);
        shelf.withdraw(&"a.wasm");
        assert_eq!(served(&shelf), [("b".to_owned(), 3)]);
    }

    #[test]
    fn a_version_that_claims_a_taken_kind_leaves_its_old_one_serving() {
        let mut shelf = Shelf::new();
        shelf.offer(fake("a.wasm", "a", &["X"], 1)).unwrap();
        shelf.offer(fake("b.wasm", "b", &["Y"], 2)).unwrap();
        shelf.offer(fake("b.wasm", "b", &["Y", "X"], 3)).unwrap_err();
        assert_eq!(served(&shelf), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        // a gives X up: the waiting version of b gets in.
        shelf.offer(fake("a.wasm", "a", &["Z"], 4)).unwrap();
        assert_eq!(served(&shelf), [("a".to_owned(), 4), ("b".to_owned(), 3)]);
    }

    #[test]
    fn the_same_name_from_two_places_is_served_from_the_newer_and_falls_back() {
        let mut shelf = Shelf::new();
        shelf.offer(fake("dir", "a", &["X"], 1)).unwrap();
        shelf.offer(fake("config map", "a", &["X"], 2)).unwrap();
        assert_eq!(served(&shelf), [("a".to_owned(), 2)]);
        shelf.withdraw(&"config map");
        assert_eq!(served(&shelf), [("a".to_owned(), 1)]);
        shelf.withdraw(&"dir");
        assert!(served(&shelf).is_empty());
    }

    #[test]
    fn a_file_that_changes_its_plugins_name_serves_the_new_one_alone() {
        let mut shelf = Shelf::new();
        shelf.offer(fake("a.wasm", "a", &["X"], 1)).unwrap();
        shelf.offer(fake("a.wasm", "b", &["X"], 2)).unwrap();
        assert_eq!(served(&shelf), [("b".to_owned(), 2)]);
    }
}
