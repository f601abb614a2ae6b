//! Rolling updates: children of one kind are touched a few at a time, by the rule of [`pilothouse_model::rollout`]. What
//! a child is, up to date or not, available or not, is read off the cluster in each pass: nothing is remembered that
//! a crash, a second change or another host would lose.

use std::sync::Arc;

use pilothouse_model::action::Rejected;
use pilothouse_model::diff::{Memory, Print};
use pilothouse_model::object::Object;
use pilothouse_model::plan::{Operation, Plan, Rollout, Write};
use pilothouse_model::rollout::{State, may_touch};
use serde_json::Value;

use crate::apply::{Done, Run, Wanted, WriteResult};
use crate::child::{Certainty, Comparison};
use crate::desired;
use crate::write_error::WriteError;

/// The roll-out of one kind in one pass.
pub(crate) struct Rolling<'a> {
    rollout: &'a Rollout,
    writes: &'a [Write],
    /// One for each write of the roll-out; none until the first of them is due.
    children: Vec<Child>,
}

struct Child {
    state: State,
    /// Why it is not available, for people.
    why: String,
}

impl Child {
    fn under_way(why: &str) -> Self {
        Self { state: State::UNDER_WAY, why: why.to_owned() }
    }
}

impl<'a> Rolling<'a> {
    pub(crate) fn all(plan: &'a Plan) -> Vec<Self> {
        let one = |rollout| Self { rollout, writes: &plan.writes, children: Vec::new() };
        plan.rollouts.iter().map(one).collect()
    }

    /// The roll-out that the plan's write `at` belongs to, and its place there.
    pub(crate) fn of_write(all: &mut [Self], at: usize) -> Option<(&mut Self, usize)> {
        all.iter_mut().find_map(|one| one.rollout.writes.binary_search(&at).ok().map(|place| (one, place)))
    }

    fn write(&self, place: usize) -> &'a Write {
        &self.writes[self.rollout.writes[place]]
    }
}

impl Run<'_> {
    /// Carries out the write at this place of a roll-out, or holds it back.
    pub(crate) async fn roll(&mut self, rolling: &mut Rolling<'_>, place: usize) -> Done {
        if rolling.children.is_empty() {
            for place in 0..rolling.rollout.writes.len() {
                let child = self.assess(rolling, place).await;
                rolling.children.push(child);
            }
        }
        let write = rolling.write(place);
        let states: Vec<State> = rolling.children.iter().map(|child| child.state).collect();
        if states[place].outdated
            && let Err(other) = may_touch(&states, place, rolling.rollout.unavailable_max)
        {
            let (target, why) = (&rolling.write(other).target, &rolling.children[other].why);
            return Ok(WriteResult::Held(format!("{} waits for {}, which {why}", write.target, target.name)));
        }
        let done = self.carry_out(write).await;
        let checks = &rolling.rollout.checks;
        rolling.children[place] = match &done {
            Ok(WriteResult::NoOp) => Child {
                state: State { outdated: false, ..states[place] },
                why: std::mem::take(&mut rolling.children[place].why),
            },
            // A status is older than the change. Without checks there is none to wait for.
            Ok(WriteResult::Written(_)) if !checks.is_empty() => Child::under_way("was updated just now"),
            Ok(WriteResult::Written(object)) => match checks.unavailable(object) {
                Some(why) => Child::under_way(&why),
                None => Child { state: State { outdated: false, available: true }, why: String::new() },
            },
            Ok(WriteResult::Held(_) | WriteResult::Deleted { .. }) => Child::under_way("is being deleted"),
            Ok(WriteResult::Rejected(Rejected { message, .. })) | Err(WriteError { message, .. }) => {
                Child::under_way(&format!("could not be updated: {message}"))
            }
        };
        done
    }

    /// What the child at this place is now.
    async fn assess(&mut self, rolling: &Rolling<'_>, place: usize) -> Child {
        let write = rolling.write(place);
        let Some(live) = self.seen.get(&write.target).filter(|live| self.is_controlled(live)) else {
            return Child::under_way("does not exist yet");
        };
        if live.meta().deleting {
            return Child::under_way("is being deleted");
        }
        let why = rolling.rollout.checks.unavailable(&live);
        let state = State { outdated: self.is_outdated(write, live).await, available: why.is_none() };
        Child { state, why: why.unwrap_or_default() }
    }

    async fn is_outdated(&mut self, write: &Write, live: Arc<Object>) -> bool {
        let Operation::Apply { object, .. } = &write.operation else { return false };
        let object = desired::canonical(object);
        let wanted = Wanted::new(write, &object);
        if self.is_stopped() {
            // It is not tried either.
            return true;
        }
        match self.compare(&wanted, live, Certainty::Likely).await {
            Ok((live, Comparison::Equal(memory))) => {
                self.applier.remember(&live, memory);
                false
            }
            Ok((live, _)) => {
                if self.applier.recall(&live).is_none() {
                    // Not of this configuration: the API server need not be asked again in the next pass.
                    self.applier.remember(&live, Memory::after(Print::of(&Value::Null), &live));
                }
                true
            }
            Err(error) => {
                self.note_error(&error, write);
                true
            }
        }
    }
}
