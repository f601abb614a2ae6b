//! What a pass comes to: the host's own condition, and when the key is looked at again.

use std::time::Duration;

use pilothouse_cluster::apply::{Report, WriteResult};
use pilothouse_cluster::write_error::WriteError;
use pilothouse_model::action::{Failure, RejectReason, Rejected};
use pilothouse_model::condition::{Reason, Reconciled};
use pilothouse_model::plan::{Plan, clip};
use pilothouse_sandbox::CallError;

use super::Ending;

/// Longest message in the condition, bytes: what is longer is read in the log.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// A pass that ended before or after its plan, with what is to be said of it.
pub(super) struct Verdict {
    pub(super) reconciled: Reconciled,
    pub(super) ending: Ending,
}

impl Verdict {
    pub(super) fn failed(reason: Reason, ending: Ending, message: &str) -> Self {
        Self {
            reconciled: Reconciled { reason, message: clip(message, MESSAGE_BYTES_MAX).to_owned() },
            ending,
        }
    }

    /// Somebody does not want it to be reconciled now, or its children are on their way.
    pub(super) fn held(reason: Reason, ending: Ending, message: &str) -> Self {
        Self::failed(reason, ending, message)
    }
}

/// Whether the next pass sees other children than this one. A deletion that waits for finalizers says so by an event.
pub(super) fn changed_children(report: &Report) -> bool {
    let changed = |result: &WriteResult| {
        matches!(result, WriteResult::Written(_) | WriteResult::Deleted { gone: true, .. })
    };
    report.entries.iter().any(|entry| changed(&entry.result))
}

/// Whether the finalizer goes: the plugin says so, and nothing that it asked for besides is left undone.
pub(super) fn releases(plan: &Plan, report: &Report) -> bool {
    let undone = report.rejected().next().is_some() || report.held().next().is_some();
    plan.release && plan.failure.is_none() && !undone
}

/// What the plan and its report come to. The plugin's own word goes before that of the writes: it is the cause.
pub(super) fn judge(plan: &Plan, report: &Report) -> Verdict {
    match &plan.failure {
        Some(Failure::Invalid(message)) => {
            // Only a change helps; but what was to be done all the same is tried again where that may help.
            let transient = report.rejected().any(|rejected| rejected.reason.is_transient());
            let ending = if transient { Ending::Failed(report.retry_after) } else { Ending::Stuck };
            Verdict::failed(Reason::InvalidResource, ending, message)
        }
        Some(Failure::Retry(message)) => {
            Verdict::failed(Reason::PluginFailed, Ending::Failed(report.retry_after), message)
        }
        None => {
            let rejected: Vec<&Rejected> = report.rejected().collect();
            let Some(first) = rejected.first() else {
                // What a child waits for is watched: its change brings the next pass.
                let ending = Ending::Settled(plan.requeue_after_ms.map(Duration::from_millis));
                let mut held = report.held();
                return match held.next() {
                    Some(first) => Verdict::held(Reason::Updating, ending, &and_more(first, held.count())),
                    None => Verdict { reconciled: Reconciled::succeeded(), ending },
                };
            };
            let target = first.target.as_ref().map(ToString::to_string).unwrap_or_default();
            let message = format!("{target}: {}: {}", first.reason.as_str(), first.message);
            let message = and_more(&message, rejected.len() - 1);
            // One write that may soon succeed is reason enough to try soon.
            let transient = rejected.iter().find(|rejected| rejected.reason.is_transient());
            let ending = pace(transient.unwrap_or(first).reason, report.retry_after);
            Verdict::failed(Reason::WriteFailed, ending, &message)
        }
    }
}

fn and_more(first: &str, others: usize) -> String {
    if others == 0 { first.to_owned() } else { format!("{first} (and {others} more)") }
}

pub(super) fn write_failed(error: &WriteError) -> Verdict {
    Verdict::failed(Reason::WriteFailed, pace(error.reason(), error.retry_after), &error.to_string())
}

/// What a call came to that gave no outcome.
pub(super) fn call_failed(error: &CallError) -> Verdict {
    let reason = match error {
        CallError::CpuLimit { .. }
        | CallError::WaitLimit { .. }
        | CallError::MemoryLimit { .. }
        | CallError::OutputLimit { .. }
        | CallError::ActionLimit { .. } => Reason::LimitExceeded,
        CallError::Trap { .. } | CallError::InvalidOutput(_) => Reason::PluginTrapped,
        CallError::Closed | CallError::HostFault(_) => Reason::HostFault,
    };
    Verdict::failed(reason, Ending::Failed(None), &format!("the plugin {error}"))
}

fn pace(reason: RejectReason, retry_after: Option<Duration>) -> Ending {
    if reason.is_transient() { Ending::Failed(retry_after) } else { Ending::Refused }
}

#[cfg(test)]
mod tests {
    use pilothouse_cluster::apply::Entry;
    use pilothouse_model::kind::{Kind, Reference};

    use super::*;

    fn report(results: Vec<WriteResult>) -> Report {
        let entries = (0..).zip(results).map(|(index, result)| Entry { index, result }).collect();
        Report { entries, retry_after: None }
    }

    fn rejected(reason: RejectReason) -> WriteResult {
        let target =
            Reference { kind: Kind::new("", "v1", "X"), namespace: None, name: "x".into(), uid: None };
        WriteResult::Rejected(Rejected { index: 0, target: Some(target), reason, message: String::new() })
    }

    #[test]
    fn writes_beside_an_invalid_resource_are_tried_again_where_that_may_help() {
        let plan = Plan { failure: Some(Failure::Invalid("spec.x".to_owned())), ..Plan::default() };
        let ending = |results| judge(&plan, &report(results)).ending;
        assert_eq!(ending(vec![]), Ending::Stuck);
        assert_eq!(ending(vec![rejected(RejectReason::Invalid)]), Ending::Stuck);
        assert_eq!(ending(vec![rejected(RejectReason::Unavailable)]), Ending::Failed(None));
    }

    /// Two managers that want different values of one field: reported, and tried at the slowest pace.
    #[test]
    fn a_conflict_is_not_fought_over() {
        let verdict = judge(&Plan::default(), &report(vec![rejected(RejectReason::Conflict)]));
        assert_eq!((verdict.ending, verdict.reconciled.reason), (Ending::Refused, Reason::WriteFailed));
        let beside =
            report(vec![rejected(RejectReason::Conflict), WriteResult::Held("b waits for a".to_owned())]);
        assert_eq!(judge(&Plan::default(), &beside).ending, Ending::Refused);
    }

    #[test]
    fn children_that_wait_are_no_failure_and_hold_the_finalizer() {
        let plan = Plan { release: true, requeue_after_ms: Some(5), ..Plan::default() };
        let held = || WriteResult::Held("b waits for a".to_owned());
        let waiting = report(vec![WriteResult::NoOp, held(), held()]);
        let verdict = judge(&plan, &waiting);
        assert_eq!(verdict.ending, Ending::Settled(Some(Duration::from_millis(5))));
        assert!(!verdict.reconciled.reason.is_failure() && !releases(&plan, &waiting));
        assert_eq!(verdict.reconciled.message, "b waits for a (and 1 more)");
        let failing = report(vec![held(), rejected(RejectReason::Invalid)]);
        assert_eq!(judge(&plan, &failing).reconciled.reason, Reason::WriteFailed);
    }

    /// A test with a real plugin cannot bring the host to fail in itself.
    #[test]
    fn a_call_that_the_host_itself_ended_is_not_blamed_on_the_plugin() {
        let limit = Duration::from_secs(1);
        for (error, reason) in [
            (CallError::Closed, Reason::HostFault),
            (CallError::HostFault("a slot".to_owned()), Reason::HostFault),
            (CallError::CpuLimit { limit }, Reason::LimitExceeded),
            (CallError::InvalidOutput("no text".to_owned()), Reason::PluginTrapped),
        ] {
            let verdict = call_failed(&error);
            assert_eq!(
                (verdict.reconciled.reason, verdict.ending),
                (reason, Ending::Failed(None)),
                "{error}"
            );
        }
    }

    #[test]
    fn a_child_that_waits_for_its_finalizers_does_not_make_passes_go_round() {
        let deleted =
            |gone| report(vec![WriteResult::NoOp, WriteResult::Deleted { uid: "u".to_owned(), gone }]);
        assert!(!changed_children(&deleted(false)));
        assert!(changed_children(&deleted(true)));
    }
}
