//! Which host should hold which shard. Pure.
//!
//! Nobody keeps a list of the hosts: who has fewer shards than another asks that one for one of them, by an annotation
//! on its Lease, and gets it if the difference is two or more when the holder looks. So the hosts come to within one
//! shard of each other and stay there: with a difference of one nobody asks. A host without any shard is seen by its
//! question.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

/// The difference that is worth moving a shard for. With one, two hosts would hand one to and fro.
const DIFFERENCE_MIN: usize = 2;

/// Who holds each shard, as far as one host knows. `None`: not looked at yet. An empty text: nobody.
pub(crate) type Holders = Vec<Option<String>>;

/// How many shards this one holds.
pub(crate) fn count(holders: &Holders, who: &str) -> usize {
    holders.iter().flatten().filter(|holder| *holder == who).count()
}

/// The shard that `who` should ask for, if any.
pub(crate) fn wants(holders: &Holders, who: &str) -> Option<usize> {
    // With one that is free, or that was not looked at, the count may be another in a moment.
    if holders.iter().any(|holder| holder.as_deref().unwrap_or_default().is_empty()) {
        return None;
    }
    let richest = holders.iter().flatten().max_by_key(|holder| (count(holders, holder), *holder))?;
    if count(holders, richest) < count(holders, who) + DIFFERENCE_MIN {
        return None;
    }
    let theirs: Vec<usize> =
        (0..holders.len()).filter(|at| holders[*at].as_deref() == Some(richest)).collect();
    // Two who ask at the same time ask for different ones, more often than not.
    let mut hasher = DefaultHasher::new();
    who.hash(&mut hasher);
    let pick = hasher.finish() % u64::try_from(theirs.len()).ok()?;
    theirs.get(usize::try_from(pick).ok()?).copied()
}

/// Whether `holder` should give a shard to `asker`.
pub(crate) fn gives(holders: &Holders, holder: &str, asker: &str) -> bool {
    asker != holder && count(holders, holder) >= count(holders, asker) + DIFFERENCE_MIN
}

/// How long `who` leaves a free shard to others: to the one who asked for it, and else to those with fewer shards.
pub(crate) fn patience(
    holders: &Holders,
    who: &str,
    asked_by: Option<&str>,
    retry_period: Duration,
) -> Duration {
    if asked_by.is_some_and(|asker| asker != who) {
        return retry_period * 2;
    }
    // A takeover may not be late for it.
    let held = u32::try_from(count(holders, who)).unwrap_or(u32::MAX).min(4);
    retry_period / 4 * held
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(text: &str) -> Holders {
        text.split(' ').map(|holder| Some(holder.trim_matches('-').to_owned())).collect()
    }

    /// Hosts ask and give until nobody wants anything. Returns how many shards moved.
    fn settle(holders: &mut Holders, hosts: &[&str]) -> usize {
        let mut moved = 0;
        while let Some((asker, shard)) = hosts.iter().find_map(|host| Some((*host, wants(holders, host)?))) {
            let holder = holders[shard].clone().unwrap();
            assert!(gives(holders, &holder, asker), "{asker} asks {holder} in vain: {holders:?}");
            holders[shard] = Some(asker.to_owned());
            moved += 1;
            assert!(moved <= holders.len(), "it never ends: {holders:?}");
        }
        moved
    }

    #[test]
    fn hosts_come_within_one_shard_of_each_other_and_then_rest() {
        for (before, hosts, shares, moves) in [
            ("a a a a", &["a", "b"][..], &[2, 2][..], 2),
            ("a a b b", &["a", "b", "c"], &[1, 2, 1], 1),
            ("a a a a a a a", &["a", "b", "c"], &[3, 2, 2], 5),
            ("a", &["a", "b"], &[1, 0], 0),
            ("a b", &["a", "b", "c"], &[1, 1, 0], 0),
        ] {
            let mut holders = holders(before);
            assert_eq!(settle(&mut holders, hosts), moves, "{before}");
            let mut counts: Vec<usize> = hosts.iter().map(|host| count(&holders, host)).collect();
            let mut shares = shares.to_vec();
            counts.sort_unstable();
            shares.sort_unstable();
            assert_eq!(counts, shares, "{before}");
        }
    }

    #[test]
    fn nobody_asks_while_a_shard_is_free_or_unknown() {
        assert_eq!(wants(&holders("a a a -"), "b"), None);
        let mut unknown = holders("a a a a");
        assert!(wants(&unknown, "b").is_some());
        unknown[0] = None;
        assert_eq!(wants(&unknown, "b"), None);
    }

    #[test]
    fn the_holder_gives_by_what_it_sees_then() {
        assert!(gives(&holders("a a"), "a", "b"));
        assert!(!gives(&holders("a b"), "a", "b"), "it has got another meanwhile");
        assert!(!gives(&holders("a a a"), "a", "a"));
    }

    #[test]
    fn a_free_shard_is_left_to_the_asker_and_to_those_with_less() {
        let retry = Duration::from_secs(2);
        let patience = |who, asked_by| patience(&holders("a a - -"), who, asked_by, retry).as_millis();
        assert_eq!(patience("b", None), 0);
        assert_eq!(patience("a", None), 1_000);
        assert_eq!((patience("b", Some("c")), patience("b", Some("b"))), (4_000, 0));
    }
}
