//! One pass offline: calls the plugin, again with answers as long as it asks, within the rounds that the contract
//! allows, and checks each outcome as the host would.

use std::sync::Arc;

use pilothouse_model::action::{Outcome, Request};
use pilothouse_model::limits::Limits;
use pilothouse_model::plan::{self, LOOK_UP_ROUNDS_MAX, Plan, Refusal};
use pilothouse_sandbox::{CallError, LogLine, Sandbox, Usage};

use crate::cli::plugin::Plugin;

use super::scene::Scene;

/// A plugin, and how it is called.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) plugin: &'a Plugin,
    pub(crate) limits: &'a Limits,
    /// JSON text.
    pub(crate) config: &'a str,
}

/// The only clock and randomness of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// RFC 3339.
    pub(crate) now: &'a str,
    pub(crate) seed: u64,
}

/// What came of one pass.
pub(crate) struct Passed {
    /// Of the last call; none if that was stopped.
    pub(crate) outcome: Option<Outcome>,
    /// What the host would do, or why nothing.
    pub(crate) plan: Result<Plan, Problem>,
    pub(crate) calls: Calls,
    pub(crate) logs: Vec<LogLine>,
}

/// Why the host would do nothing.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The contract or the manifest does not allow it.
    Refusal(Refusal),
    /// It asks for what cannot be answered.
    LookUp(String),
    /// It was stopped.
    Call(CallError),
}

impl Problem {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Refusal(refusal) => format!("the host would refuse the outcome: {refusal}"),
            Self::LookUp(problem) => format!("the plugin {problem}"),
            Self::Call(error) => format!("the plugin {error}"),
        }
    }
}

/// What the calls of one pass used together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Calls {
    pub(crate) count: usize,
    pub(crate) usage: Usage,
}

impl Calls {
    fn add(&mut self, usage: &Usage) {
        self.count += 1;
        self.usage.cpu += usage.cpu;
        self.usage.memory_bytes_peak = self.usage.memory_bytes_peak.max(usage.memory_bytes_peak);
        self.usage.log_lines_dropped += usage.log_lines_dropped;
    }
}

impl Caller<'_> {
    /// One pass over the scene, which keeps the answers.
    pub(crate) fn pass(&self, scene: &mut Scene<'_>, moment: Moment<'_>) -> Passed {
        let (mut calls, mut logs) = (Calls::default(), Vec::new());
        let (outcome, plan) = self.rounds(scene, moment, &mut calls, &mut logs);
        Passed { outcome, plan, calls, logs }
    }

    fn rounds(
        &self,
        scene: &mut Scene<'_>,
        moment: Moment<'_>,
        calls: &mut Calls,
        logs: &mut Vec<LogLine>,
    ) -> (Option<Outcome>, Result<Plan, Problem>) {
        loop {
            let Moment { now, seed } = moment;
            let request = scene.snapshot.request(scene.deleting, self.config, now, seed, &[]);
            let outcome = match self.call(request, calls, logs) {
                Ok(outcome) => outcome,
                Err(error) => return (None, Err(Problem::Call(error))),
            };
            let plan = match self.admit(&outcome, scene) {
                Ok(plan) => plan,
                Err(refusal) => return (Some(outcome), Err(Problem::Refusal(refusal))),
            };
            if plan.look_ups.is_empty() {
                return (Some(outcome), Ok(plan));
            }
            let answered = if calls.count <= LOOK_UP_ROUNDS_MAX {
                scene.answer(&plan.look_ups)
            } else {
                Err(format!("asked for more objects after {LOOK_UP_ROUNDS_MAX} rounds of look-ups"))
            };
            if let Err(problem) = answered {
                return (Some(outcome), Err(Problem::LookUp(problem)));
            }
        }
    }

    fn call(
        &self,
        request: Request,
        calls: &mut Calls,
        logs: &mut Vec<LogLine>,
    ) -> Result<Outcome, CallError> {
        let reply = self.sandbox.reconcile_blocking(&self.plugin.prepared, self.limits, Arc::new(request));
        calls.add(&reply.usage);
        logs.extend(reply.logs);
        reply.result
    }

    fn admit(&self, outcome: &Outcome, scene: &Scene<'_>) -> Result<Plan, Refusal> {
        let related = scene.snapshot.related_objects();
        let context = plan::Context {
            plugin: &self.plugin.manifest().name,
            controller: scene.controller,
            primary: &scene.snapshot.primary,
            children: &scene.snapshot.children,
            related: &related,
            deleting: scene.deleting,
            limits: self.limits,
            grants: &self.plugin.artifact.settings.grants,
            namespaces: &[],
        };
        plan::admit(outcome.clone(), &context)
    }
}
