//! What the keepers of all Leases of one host know, in one place: for each other, and for everybody who reads
//! [`Shards`](super::Shards).

use std::sync::Arc;

use tokio::sync::watch;

use super::shards::States;
use super::term::Term;

/// Written by keepers only. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Board(Arc<watch::Sender<Arc<States>>>);

impl Board {
    pub(crate) fn new(shards: usize) -> Self {
        let states = States { terms: vec![None; shards], holders: vec![None; shards], ..States::default() };
        Self(Arc::new(watch::channel(Arc::new(states)).0))
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<States>> {
        self.0.subscribe()
    }

    pub(crate) fn states(&self) -> Arc<States> {
        Arc::clone(&self.0.borrow())
    }

    /// Who holds a shard. An empty text: nobody, or one who is about to give it up.
    pub(crate) fn set_holder(&self, shard: usize, holder: &str) {
        self.change(
            |states| states.holders[shard].as_deref() != Some(holder),
            |states| {
                states.holders[shard] = Some(holder.to_owned());
            },
        );
    }

    /// Whether this host holds a shard.
    pub(crate) fn set_term(&self, shard: usize, term: Option<Term>) {
        self.change(|_| true, |states| states.terms[shard] = term);
    }

    /// Why this host cannot take part in the election of a Lease.
    pub(crate) fn set_problem(&self, lease: &str, problem: Option<String>) {
        self.change(
            |states| states.problems.get(lease) != problem.as_ref(),
            |states| match &problem {
                Some(problem) => drop(states.problems.insert(lease.to_owned(), problem.clone())),
                None => drop(states.problems.remove(lease)),
            },
        );
    }

    /// Why it must wait although nothing is wrong.
    pub(crate) fn set_excluded(&self, reason: Option<String>) {
        self.change(|states| states.excluded != reason, |states| states.excluded.clone_from(&reason));
    }

    /// Wakes readers only if there is something new.
    fn change(&self, is_new: impl FnOnce(&States) -> bool, change: impl FnOnce(&mut States)) {
        self.0.send_if_modified(|states| {
            let new = is_new(states);
            if new {
                change(Arc::make_mut(states));
            }
            new
        });
    }
}
