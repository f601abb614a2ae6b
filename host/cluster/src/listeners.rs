//! Who hears of the changes of a store. A thousand plugins may share one, so each hears of its own children only, and
//! the others cost a change nothing.

use std::collections::HashMap;
use std::sync::Arc;

use pilothouse_model::object::Object;

use crate::index::Delta;

/// Hears of each change of a store. It is called by whoever made the change, with no lock of the store held, and must
/// neither block nor take long: it puts keys into a queue. Of two changes at the same moment the later may be told
/// first; what is true stands in the store.
///
/// A function rather than a channel: a channel would need a bound, and then a place to wait for a slow reader, which
/// would hold up the others.
pub type Listener = Arc<dyn Fn(&Delta) + Send + Sync>;

/// Which objects a listener hears of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Interest {
    /// All.
    All,
    /// Those whose label names this plugin. An object that is given to another is told as deleted.
    Managed(Arc<str>),
}

impl Interest {
    pub(crate) fn is_in(&self, object: &Object) -> bool {
        match self {
            Self::All => true,
            Self::Managed(plugin) => object.meta().managed.as_ref() == Some(plugin),
        }
    }
}

/// The listeners of one store.
#[derive(Clone, Default)]
pub(crate) struct Listeners {
    next: u64,
    all: Vec<(u64, Listener)>,
    managed: HashMap<Arc<str>, Vec<(u64, Listener)>>,
}

impl Listeners {
    pub(crate) fn join(&mut self, interest: &Interest, listener: Listener) -> u64 {
        self.next += 1;
        let list = match interest {
            Interest::All => &mut self.all,
            Interest::Managed(plugin) => self.managed.entry(Arc::clone(plugin)).or_default(),
        };
        list.push((self.next, listener));
        self.next
    }

    pub(crate) fn leave(&mut self, interest: &Interest, id: u64) {
        match interest {
            Interest::All => self.all.retain(|(other, _)| *other != id),
            Interest::Managed(plugin) => {
                if let Some(list) = self.managed.get_mut(plugin) {
                    list.retain(|(other, _)| *other != id);
                    if list.is_empty() {
                        self.managed.remove(plugin);
                    }
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len() + self.managed.values().map(Vec::len).sum::<usize>()
    }

    pub(crate) fn tell(&self, delta: &Delta) {
        self.all.iter().for_each(|(_, listener)| listener(delta));
        if self.managed.is_empty() {
            return;
        }
        let of = |plugin: &Option<Arc<str>>| {
            plugin.as_ref().and_then(|plugin| self.managed.get(plugin)).into_iter().flatten()
        };
        let plugin = &delta.object.meta().managed;
        if let Some(before) = delta.previous.as_ref().map(|previous| &previous.meta().managed)
            && before != plugin
            && let Some(left) = delta.left()
        {
            of(before).for_each(|(_, listener)| listener(&left));
        }
        of(plugin).for_each(|(_, listener)| listener(delta));
    }
}
