//! Plan mode: may what is pending be carried out?
//!
//! The host writes what it would do into an annotation of the resource, under one hash; a person approves that hash by
//! another annotation. What an approval covers is a set of actions, each by its own hash, so that a host that is killed
//! half way, or a write that fails, needs no second approval for the rest: what is still pending is part of what was
//! approved. What was done leaves the set before the next action begins, so that nothing is done twice by one approval.

use std::collections::BTreeSet;

use crate::pending::{Hash, Pending};
use crate::plan::clip;

/// Largest plan text, bytes. All annotations of an object together may have 256 KiB; the hashes of 2,000 actions (as
/// many as a plugin may return by default) take 34 KB, and lines that nobody will read all take the rest.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Bytes of lines that say what changes; behind them only hashes follow.
const LINES_BYTES_MAX: usize = 16 << 10;
/// Begins the line of hashes whose actions are not shown.
const NOT_SHOWN: &str = "not shown:";

/// What to do with what is pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nothing would be written. A plan text or an approval that is still there has done its work.
    Nothing,
    /// Somebody approved it. The annotation must hold this text before the first write.
    Approved(PlanText),
    /// Nobody did. The annotation shall hold this text.
    Waits {
        /// The plan.
        plan: PlanText,
        /// What was approved instead.
        stale: Option<String>,
    },
    /// There is more than an annotation holds.
    TooMuch(usize),
}

/// A plan as its annotation holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanText {
    /// What is to be approved.
    pub hash: Hash,
    /// The value of the annotation.
    pub text: String,
}

impl PlanText {
    /// `home` tells plans of two resources apart: the primary's UID.
    fn new(pending: &[Pending], home: &str) -> Self {
        let actions: Vec<String> = pending.iter().map(|action| action.hash.to_string()).collect();
        let texts: Vec<&str> = std::iter::once(home).chain(actions.iter().map(String::as_str)).collect();
        let hash = Hash::of(&texts);
        Self { hash, text: text(hash, pending) }
    }
}

fn text(hash: Hash, pending: &[Pending]) -> String {
    let mut text = format!("plan {hash}\n");
    let mut rest = pending.iter();
    for action in rest.by_ref() {
        text += &(action.line() + "\n");
        if text.len() > LINES_BYTES_MAX {
            break;
        }
    }
    if rest.len() > 0 {
        text += NOT_SHOWN;
        for action in rest {
            text.push(' ');
            text += &action.hash.to_string();
        }
        text.push('\n');
    }
    text
}

/// The hash of a plan text and those of its actions; none if it is no such text.
fn read(text: &str) -> Option<(Hash, BTreeSet<Hash>)> {
    let mut lines = text.lines();
    let hash = Hash::parse(lines.next()?.strip_prefix("plan ")?.trim())?;
    let mut actions = BTreeSet::new();
    for line in lines {
        match line.strip_prefix(NOT_SHOWN) {
            Some(hashes) => actions.extend(hashes.split_whitespace().filter_map(Hash::parse)),
            None => actions.extend(line.split_whitespace().next().and_then(Hash::parse)),
        }
    }
    Some((hash, actions))
}

/// Decides. `kept` is the annotation as it is, `approved` what somebody approved, `home` the primary's UID.
pub fn stand(pending: &[Pending], kept: Option<&str>, approved: Option<&str>, home: &str) -> Standing {
    if pending.is_empty() {
        return Standing::Nothing;
    }
    let plan = PlanText::new(pending, home);
    if plan.text.len() > TEXT_BYTES_MAX {
        return Standing::TooMuch(pending.len());
    }
    let approved_hash = approved.and_then(Hash::parse);
    if approved_hash == Some(plan.hash) {
        return Standing::Approved(plan);
    }
    if let Some((hash, actions)) = kept.and_then(read)
        && approved_hash == Some(hash)
        && pending.iter().all(|action| actions.contains(&action.hash))
    {
        // The rest of what was approved, under the hash that was.
        return Standing::Approved(PlanText { hash, text: text(hash, pending) });
    }
    Standing::Waits { plan, stale: approved.map(|hash| clip(hash, 64).to_owned()) }
}

/// `1 to create, 2 to update, 1 to delete`
pub fn count(pending: &[Pending]) -> String {
    use crate::pending::Verb::{Create, Delete, Update};
    let counts = [Create, Update, Delete].into_iter().filter_map(|verb| {
        let count = pending.iter().filter(|action| action.verb == verb).count();
        (count > 0).then(|| format!("{count} to {}", verb.as_str()))
    });
    counts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::kind::{Kind, Reference};
    use crate::pending::Verb;

    fn action(name: &str, value: u64) -> Pending {
        let target = Reference {
            kind: Kind::new("", "v1", "ConfigMap"),
            namespace: Some("n".to_owned()),
            name: name.to_owned(),
            uid: None,
        };
        Pending::new(Verb::Create, &target, None, Some("n"), &Value::Null, &json!({"data": {"k": value}}))
    }

    fn waits(standing: Standing) -> (PlanText, Option<String>) {
        match standing {
            Standing::Waits { plan, stale } => (plan, stale),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_plan_waits_until_its_own_hash_is_approved() {
        let pending = [action("a", 1), action("b", 2)];
        let (plan, stale) = waits(stand(&pending, None, None, "u"));
        assert_eq!(stale, None);
        assert_eq!(plan.text.lines().count(), 3);
        assert!(plan.text.starts_with(&format!("plan {}\n", plan.hash)));
        assert!(plan.text.contains(" create ConfigMap b: data.k = 2\n"), "{}", plan.text);
        let hash = plan.hash.to_string();
        assert_eq!(stand(&pending, Some(&plan.text), Some(&hash), "u"), Standing::Approved(plan.clone()));
        // The annotation may have been lost: it is written again before the first write.
        assert_eq!(stand(&pending, None, Some(&hash), "u"), Standing::Approved(plan.clone()));
        let (_, stale) = waits(stand(&pending, Some(&plan.text), Some("yes please"), "u"));
        assert_eq!(stale.as_deref(), Some("yes please"));
        let (other, _) = waits(stand(&pending, None, Some(&hash), "another resource"));
        assert_ne!(other.hash, plan.hash);
        let turned: Vec<Pending> = pending.iter().rev().cloned().collect();
        assert_ne!(waits(stand(&turned, None, None, "u")).0.hash, plan.hash, "order is part of a plan");
        assert_eq!(stand(&[], Some(&plan.text), Some(&hash), "u"), Standing::Nothing);
    }

    #[test]
    fn an_old_approval_does_nothing_when_the_plan_has_changed() {
        let pending = [action("a", 1), action("b", 2)];
        let (plan, _) = waits(stand(&pending, None, None, "u"));
        let hash = plan.hash.to_string();
        for changed in
            [vec![action("a", 9), action("b", 2)], vec![action("a", 1), action("b", 2), action("c", 3)]]
        {
            let (new, stale) = waits(stand(&changed, Some(&plan.text), Some(&hash), "u"));
            assert_ne!(new.hash, plan.hash);
            assert_eq!(stale.as_deref(), Some(hash.as_str()));
        }
    }

    #[test]
    fn more_than_an_annotation_holds_is_said_and_not_cut() {
        let many: Vec<Pending> = (0..2_000).map(|at| action(&format!("config-map-{at}"), at)).collect();
        let (plan, _) = waits(stand(&many, None, None, "u"));
        assert!(plan.text.len() <= TEXT_BYTES_MAX, "{}", plan.text.len());
        assert_eq!(read(&plan.text).unwrap().1.len(), 2_000);
        let more: Vec<Pending> = (0..10_000).map(|at| action(&format!("config-map-{at}"), at)).collect();
        assert_eq!(stand(&more, None, None, "u"), Standing::TooMuch(10_000));
        assert_eq!(count(&many[..2]), "2 to create");
    }

    proptest! {
        #[test]
        fn what_is_left_of_an_approved_plan_needs_no_approval_and_what_was_done_needs_one(
            done in prop::collection::vec(any::<bool>(), 1..40),
        ) {
            let all: Vec<Pending> = (0..done.len()).map(|at| action(&format!("c-{at}"), at as u64)).collect();
            let (plan, _) = waits(stand(&all, None, None, "u"));
            let hash = plan.hash.to_string();
            // Killed at any point, after any of the writes.
            let of = |wanted: bool| -> Vec<Pending> {
                all.iter().zip(&done).filter(|(_, done)| **done == wanted).map(|(action, _)| action.clone()).collect()
            };
            let left = of(false);
            match stand(&left, Some(&plan.text), Some(&hash), "u") {
                Standing::Nothing => prop_assert!(left.is_empty()),
                Standing::Approved(rest) => {
                    prop_assert_eq!(rest.hash, plan.hash);
                    // Once the rest is what the annotation holds, what was done is not covered any more.
                    for again in of(true) {
                        let mut drifted = left.clone();
                        drifted.push(again);
                        let all_again = drifted.len() == all.len() && left.len() + 1 == all.len();
                        let standing = stand(&drifted, Some(&rest.text), Some(&hash), "u");
                        prop_assert!(matches!(standing, Standing::Waits { .. }) || all_again, "{standing:?}");
                    }
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
