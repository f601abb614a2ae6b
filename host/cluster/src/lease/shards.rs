//! Which shard a key is of, and whether this host holds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_model::names::{Key, PluginName};
use tokio::sync::watch;

use super::balance::Holders;
use super::term::{Term, WorkGuard};

/// The shards of all work, and the terms of those that this host holds. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shards {
    states: watch::Receiver<Arc<States>>,
    /// `NAMESPACE/NAME` of each shard's Lease; empty for a host that is alone.
    leases: Arc<[String]>,
}

/// What is known of the shards at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct States {
    pub(crate) terms: Vec<Option<Term>>,
    /// Who holds each, as far as is known.
    pub(crate) holders: Holders,
    /// By Lease: why this host cannot take part in its election.
    pub(crate) problems: BTreeMap<String, String>,
    /// Why it must wait although nothing is wrong with the API server.
    pub(crate) excluded: Option<String>,
}

impl Shards {
    pub(crate) fn new(states: watch::Receiver<Arc<States>>, leases: Vec<String>) -> Self {
        Self { states, leases: leases.into() }
    }

    /// All work is this host's, for as long as it runs: nobody else is there, as far as the user says.
    pub fn alone() -> Self {
        let states = States { terms: vec![Some(Term::endless())], ..States::default() };
        // A receiver without a sender keeps its value.
        Self::new(watch::channel(Arc::new(states)).1, Vec::new())
    }

    /// How many there are; the same as long as the host runs.
    pub fn count(&self) -> usize {
        self.states.borrow().terms.len()
    }

    /// The shard of what a plugin does in a namespace (none: about what has no namespace). The same on every host that
    /// has as many shards, in every version of this program.
    pub fn of(&self, plugin: &PluginName, namespace: Option<&str>) -> usize {
        shard_of(plugin.as_str(), namespace.unwrap_or_default(), self.count())
    }

    /// As [`Shards::of`] for a primary.
    pub fn of_key(&self, plugin: &PluginName, key: &Key) -> usize {
        self.of(plugin, key.namespace.as_deref())
    }

    /// As [`Shards::of`] for what the host itself has to say in a namespace, about no plugin that it serves.
    pub fn of_host(&self, namespace: &str) -> usize {
        // No plugin has this name.
        shard_of("", namespace, self.count())
    }

    /// A piece of work in a shard begins, and ends with the guard. None: the shard is not this host's.
    pub fn begin_work(&self, shard: usize) -> Option<WorkGuard> {
        self.term(shard)?.begin_work()
    }

    /// The term of a shard that this host holds and may begin passes of.
    pub fn term(&self, shard: usize) -> Option<Term> {
        let states = self.states.borrow();
        states.terms.get(shard)?.clone().filter(Term::takes_work)
    }

    /// The terms that this host holds, by shard, and from now on [`Shards::changed`] waits for others.
    pub fn terms(&mut self) -> Vec<Option<Term>> {
        let states = self.states.borrow_and_update();
        states.terms.iter().map(|term| term.clone().filter(Term::takes_work)).collect()
    }

    /// Waits until a shard may have been taken or lost. Cancel safe.
    pub async fn changed(&mut self) {
        if self.states.changed().await.is_err() {
            // A host that is alone, or one that ends.
            std::future::pending::<()>().await;
        }
    }

    /// The name of each shard's Lease, and whether this host holds it.
    pub fn leases(&self) -> Vec<(String, bool)> {
        let states = self.states.borrow();
        let name = |lease: &String| lease.rsplit('/').next().unwrap_or_default().to_owned();
        self.leases.iter().map(name).zip(states.terms.iter().map(Option::is_some)).collect()
    }

    /// What keeps this host from taking a shard, whoever else has it: a right that is missing, an API server that does
    /// not answer. `None`: it holds some, or stands by.
    pub fn problem(&self) -> Option<String> {
        let states = self.states.borrow();
        if let Some((lease, problem)) = states.problems.first_key_value() {
            return Some(format!("{lease}: {problem}"));
        }
        let unseen = states.holders.iter().zip(&*self.leases).find(|(holder, _)| holder.is_none());
        let (_, lease) = unseen.filter(|_| states.excluded.is_none())?;
        Some(format!("{lease}: not looked at yet"))
    }

    /// What this host does not hold and who does, for people. `None`: it holds everything.
    pub fn standing_by(&self) -> Option<String> {
        let states = self.states.borrow();
        if let Some(excluded) = &states.excluded {
            return Some(format!("stands by: {excluded}"));
        }
        let missing: Vec<String> = (self.leases.iter().zip(&states.terms).zip(&states.holders))
            .filter(|((_, term), _)| term.is_none())
            .map(|((lease, _), holder)| match holder.as_deref().unwrap_or_default() {
                "" => format!("Lease {lease} is free"),
                holder => format!("Lease {lease} is held by {holder}"),
            })
            .collect();
        let all = missing.len() == self.leases.len();
        (!missing.is_empty())
            .then(|| format!("{}: {}", if all { "stands by" } else { "shares" }, missing.join(", ")))
    }
}

/// FNV-1a of both names with a zero between them, which no name has; then the last step of MurmurHash3, without which
/// FNV's low bits depend on too little. Written out here, since every host of every version must come to the same.
fn shard_of(plugin: &str, namespace: &str, count: usize) -> usize {
    if count <= 1 {
        return 0;
    }
    let bytes = plugin.bytes().chain([0]).chain(namespace.bytes());
    let mut hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    // Both are what a `usize` holds.
    usize::try_from(hash % count as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_is_of_the_same_shard_for_ever() {
        let of = |plugin, namespace| [1, 2, 3, 16].map(|count| shard_of(plugin, namespace, count));
        // Computed by another program.
        assert_eq!(of("postgres-cluster", "shop"), [0, 0, 0, 12]);
        assert_eq!(of("postgres-cluster", ""), [0, 1, 0, 3]);
        assert_eq!(of("config-map", "shop"), [0, 0, 0, 6]);
    }

    #[test]
    fn namespaces_and_plugins_are_spread_evenly() {
        for count in [2, 3, 4, 7] {
            let mut shares = vec![0; count];
            for namespace in 0..2_000 {
                shares[shard_of("web", &format!("team-{namespace}"), count)] += 1;
            }
            let fair = 2_000 / count;
            assert!(
                shares.iter().all(|share| (fair * 8 / 10..=fair * 12 / 10).contains(share)),
                "{shares:?}"
            );
            let of_one_namespace: std::collections::BTreeSet<usize> =
                (0..50).map(|plugin| shard_of(&format!("plugin-{plugin}"), "shop", count)).collect();
            assert_eq!(of_one_namespace.len(), count);
        }
    }

    #[tokio::test]
    async fn a_host_that_is_alone_holds_everything() {
        let mut shards = Shards::alone();
        let plugin: PluginName = "web".parse().unwrap();
        assert_eq!((shards.count(), shards.of(&plugin, Some("shop"))), (1, 0));
        assert!(shards.term(0).is_some() && shards.terms().len() == 1 && shards.leases().is_empty());
        assert_eq!((shards.standing_by(), shards.problem()), (None, None));
        assert!(futures::poll!(Box::pin(shards.changed())).is_pending());
    }
}
