//! Chaos for pods: `chaospods.app.example.com/v1alpha1`. At each due time a few pods whose names begin with a prefix are
//! deleted, and their controllers make new ones.
//!
//! Each due time is one run, whatever fails in between, since the three steps of a run are passes of their own with the
//! status between them:
//!
//! 1. It is due: pods are chosen and stand in `status.running`. Nothing is deleted yet, so if the status is not written,
//!    nothing has happened.
//! 2. What was chosen is deleted, by UID: to do it twice deletes nobody else.
//! 3. Nobody of them lives any more: the run goes to `status.history`.
//!
//! Pods are looked up while a run goes on and not watched at rest: an idle resource costs nothing.
//!
//! - [`spec`]: what the user writes, what the status says, and the checks
//! - `run`: the steps

mod run;
pub mod spec;

use std::time::Duration;

use pilothouse_sdk::prelude::*;

pub use spec::{ChaosPod, ChaosPodStatus, Run, Victim, validate};

/// Until the next step of a run. What it waits for is quick: a write of the status, pods that begin to end.
const STEP: Duration = Duration::from_millis(200);

impl Reconciler for ChaosPod {
    const PRIMARY: Resource = Resource::namespaced("app.example.com", "v1alpha1", "ChaosPod", "chaospods");
    type Status = ChaosPodStatus;

    fn controller() -> Controller {
        let crd = Crd::of::<Self>()
            .column("Prefix", Column::Text, ".spec.prefix")
            .column("Timer", Column::Text, ".status.timer")
            .column("Ready", Column::Text, ".status.conditions[?(@.type==\"Ready\")].reason")
            .column("Last", Column::Date, ".status.history[0].time")
            .column("Next", Column::Text, ".status.nextTime")
            .age();
        let pods = Related::on_request("pods", POD).fields(&[".status.phase"]);
        let namespaces = Related::on_request("namespaces", NAMESPACE).metadata_only();
        Controller::new(crd).reads(pods).reads(namespaces).changes(Target::delete(POD))
    }

    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        let (spec, now, mut status) = (&pass.spec, pass.time()?, pass.status());
        let timer = validate(spec, pass.created()?).map_err(|problems| {
            (status.timer, status.next_time) = (None, None);
            pass.refuse(problems, &status, actions)
        })?;
        // A time counts for the timer that it came from, and none while paused: to go on is to begin anew.
        if spec.paused || status.timer != Some(timer.to_string()) {
            (status.timer, status.next_time) = (Some(timer.to_string()), None);
        }
        if status.running.is_some() || status.next_time.is_some_and(|due| due <= now) {
            let selector = spec.namespace_selector.as_ref();
            let Some(pods) = pass.ask_in_namespaces(POD, selector, actions) else { return Ok(()) };
            status.step(pass, now, &pods, actions);
        }
        let mut ready = Condition::no("Ready", "Paused", "no run until spec.paused is false");
        if !spec.paused {
            let next = *status.next_time.get_or_insert_with(|| timer.after(now));
            actions.requeue_after(if status.running.is_some() { STEP } else { next.since(now) });
            ready = Condition::yes("Ready", "Scheduled", ["runs ", &timer.to_string()].concat());
        }
        actions.push(pass.set_status(&status).condition(ready));
        Ok(())
    }
}

export!(ChaosPod);
