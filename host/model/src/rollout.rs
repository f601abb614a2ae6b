//! Rolling updates: which children may be touched now. It is asked anew in each pass and remembers nothing, so that a
//! second change in the middle, a crash or another host goes on from where the children stand.
//!
//! A child is *outdated* while it differs from what the plugin wants, and *available* while its checks pass. One that
//! is not there, is going, or was updated and is not available is *under way*.
//!
//! 1. While as many are under way as may be unavailable, nothing is touched. So a roll-out to something that does not
//!    work stops at its first children.
//! 2. An outdated child that is unavailable anyway may be touched: nothing is lost, and it may be the cure. Were it
//!    counted against the others, a change that repairs broken children could never begin.
//! 3. An outdated child that is available may be touched if then no more are unavailable than may be.
//!
//! Children that are missing are created without being asked for here.

/// What is known of one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// It exists, does not go, and differs from what is wanted.
    pub outdated: bool,
    /// It exists and its checks pass.
    pub available: bool,
}

impl State {
    /// Missing, going, just touched, or could not be touched.
    pub const UNDER_WAY: Self = Self { outdated: false, available: false };

    fn is_under_way(self) -> bool {
        self == Self::UNDER_WAY
    }
}

/// Whether the outdated child at this place may be touched now; if not, the place of the child that it waits for.
///
/// # Errors
/// The place of the first child that is in the way.
pub fn may_touch(children: &[State], at: usize, unavailable_max: usize) -> Result<(), usize> {
    let under_way = children.iter().filter(|child| child.is_under_way()).count();
    let unavailable = children.iter().filter(|child| !child.available).count();
    let first = |what: fn(&State) -> bool| children.iter().position(what).unwrap_or(at);
    if under_way >= unavailable_max {
        Err(first(|child| child.is_under_way()))
    } else if children[at].available && unavailable >= unavailable_max {
        Err(first(|child| !child.available))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OLD: State = State { outdated: true, available: true };
    const BROKEN: State = State { outdated: true, available: false };
    const NEW: State = State { outdated: false, available: true };

    #[test]
    fn one_by_one_and_only_behind_what_works() {
        assert_eq!(may_touch(&[OLD, OLD, OLD], 0, 1), Ok(()));
        assert_eq!(may_touch(&[NEW, OLD, OLD], 1, 1), Ok(()));
        assert_eq!(may_touch(&[NEW, State::UNDER_WAY, OLD], 2, 1), Err(1));
        assert_eq!(may_touch(&[State::UNDER_WAY, OLD, OLD], 1, 2), Ok(()));
        assert_eq!(may_touch(&[State::UNDER_WAY, State::UNDER_WAY, OLD], 2, 2), Err(0));
    }

    #[test]
    fn what_is_broken_anyway_may_be_repaired_and_is_not_joined_by_others() {
        assert_eq!(may_touch(&[OLD, BROKEN, BROKEN], 1, 1), Ok(()));
        assert_eq!(may_touch(&[OLD, BROKEN, BROKEN], 0, 1), Err(1));
        assert_eq!(may_touch(&[OLD, BROKEN, OLD], 0, 2), Ok(()));
        assert_eq!(
            may_touch(&[State::UNDER_WAY, BROKEN], 1, 1),
            Err(0),
            "the update may be what breaks them"
        );
    }

    fn state() -> impl Strategy<Value = State> {
        prop_oneof![Just(OLD), Just(BROKEN), Just(NEW), Just(State::UNDER_WAY)]
    }

    /// One pass: each outdated child in order is touched if it may be.
    fn pass(children: &mut [State], unavailable_max: usize) -> usize {
        let mut touched = 0;
        for at in 0..children.len() {
            if children[at].outdated && may_touch(children, at, unavailable_max).is_ok() {
                children[at] = State::UNDER_WAY;
                touched += 1;
            }
        }
        touched
    }

    fn unavailable(children: &[State]) -> usize {
        children.iter().filter(|child| !child.available).count()
    }

    proptest! {
        #[test]
        fn never_more_are_unavailable_by_our_hand(
            mut children in prop::collection::vec(state(), 1..12), max in 1_usize..5,
            healed in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
            broken in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            // Others heal and break children in between, and a second change makes some outdated again.
            let mut broken = broken.into_iter();
            for healed in healed {
                let before = unavailable(&children);
                let under_way = children.iter().filter(|child| child.is_under_way()).count();
                pass(&mut children, max);
                prop_assert!(unavailable(&children) <= before.max(max));
                let now = children.iter().filter(|child| child.is_under_way()).count();
                prop_assert!(now <= under_way.max(max));
                prop_assert_eq!(pass(&mut children, max), 0, "a second look at the same state does nothing");
                let healed = healed.index(children.len());
                children[healed].available = true;
                if let Some(at) = broken.next() {
                    let at = at.index(children.len());
                    children[at] = State { outdated: children[at].available, available: false };
                }
            }
        }

        #[test]
        fn it_ends_with_all_updated_if_updated_children_become_available(
            mut children in prop::collection::vec(state(), 1..12), max in 1_usize..5,
        ) {
            for _ in 0..=children.len() {
                // What was updated becomes available; what was broken before stays so until it is updated.
                for child in children.iter_mut().filter(|child| child.is_under_way()) {
                    child.available = true;
                }
                pass(&mut children, max);
            }
            prop_assert!(children.iter().all(|child| !child.outdated), "{:?}", children);
        }

        #[test]
        fn how_many_are_touched_does_not_depend_on_their_order(
            children in prop::collection::vec(state(), 1..12), max in 1_usize..5,
        ) {
            let rest = |mut children: Vec<State>| {
                // Until nothing moves: what the order decides within a pass is who, not how many in the end.
                while pass(&mut children, max) > 0 {}
                (unavailable(&children), children.iter().filter(|child| child.is_under_way()).count())
            };
            let reversed = children.iter().rev().copied().collect();
            prop_assert_eq!(rest(children), rest(reversed));
        }
    }
}
