//! The steps of a run.

use std::time::Duration;

use pilothouse_sdk::{prelude::*, random::Random, time::Time};

use crate::spec::{ChaosPod, ChaosPodStatus, Run, Victim};

/// What could not be deleted by then is spared: nobody expects a run of an hour ago to go on.
const RUN_MAX: Duration = Duration::from_mins(1);
/// Runs that the status keeps.
const HISTORY_MAX: usize = 10;

impl ChaosPodStatus {
    /// Begins a run, or brings the one that has begun to its next step.
    pub(crate) fn step(&mut self, pass: &Pass<ChaosPod>, now: Time, pods: &[&Object], actions: &mut Actions) {
        let spec = &pass.spec;
        let alive: Vec<_> = pods.iter().filter(|pod| views::Pod(pod).is_alive()).collect();
        let spared = |pod: &Object| spec.protected_label.as_deref().is_some_and(|label| pod.has_label(label));
        let may = |pod: &&&&Object| pod.name().starts_with(&spec.prefix) && !spared(pod);
        let candidates = alive.iter().filter(may).map(|pod| Victim::of(pod));
        let Some(mut run) = self.running.take() else {
            // Times that were missed are over with this one.
            self.next_time = None;
            let pods = Random::new(pass.seed).choose(candidates.collect(), spec.max_pods as usize);
            self.running = Some(Run { time: now, pods, dry_run: spec.dry_run });
            return;
        };
        let left: Vec<Victim> = candidates.filter(|pod| run.pods.contains(pod)).collect();
        let dry_run = run.dry_run;
        if dry_run || left.is_empty() || spec.paused || now.since(run.time) > RUN_MAX {
            // Who came to be protected meanwhile was not deleted either.
            run.pods.retain(|chosen| dry_run || !alive.iter().any(|pod| Victim::of(pod) == *chosen));
            return self.record(run, actions);
        }
        for pod in left {
            actions.push(Delete::new(pod.into()));
        }
        self.running = Some(run);
    }

    fn record(&mut self, run: Run, actions: &mut Actions) {
        let names: Vec<_> = run.pods.iter().map(|pod| pod.name.as_str()).collect();
        let did = if run.dry_run { "would have deleted " } else { "deleted " };
        if !names.is_empty() {
            actions.push(Event::normal("Run", [did, &names.join(", ")].concat()));
        }
        self.history.insert(0, run);
        self.history.truncate(HISTORY_MAX);
    }
}
