//! A pass in plan mode: what it would write is rehearsed and shown, and done once somebody has approved it. Until then
//! the host writes two things, both about the plan itself: the annotation that holds it, and its own condition. Not
//! the finalizer, not the plugin's status, no event of the plugin.
//!
//! The decision is [`approval::stand`]'s; what would happen is what a [`Rehearsal`] of the ordinary writes records.
//! Between the rehearsal and the writes lie some milliseconds in which somebody else may
//! change an object; such a change is not approved and not looked for. Deletions have the UID that was shown.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pilothouse_cluster::annotate::annotate;
use pilothouse_cluster::apply::{Applier, ApplyContext, Report, Sink};
use pilothouse_cluster::finalizer;
use pilothouse_cluster::rehearsal::Rehearsal;
use pilothouse_cluster::write_error::WriteError;
use pilothouse_model::action::{Event, Rejected, Severity};
use pilothouse_model::approval::{self, PlanText, Standing};
use pilothouse_model::condition::Reason;
use pilothouse_model::kind::Reference;
use pilothouse_model::manifest::Resource;
use pilothouse_model::names::{APPROVE_ANNOTATION, PLAN_ANNOTATION};
use pilothouse_model::object::Object;
use pilothouse_model::pending::Pending;
use pilothouse_model::plan::Plan;

use super::verdict::{Verdict, judge, releases, write_failed};
use super::{Ended, Ending, Pass};
use crate::snapshot::{self, Snapshot};

/// What a rehearsal showed.
struct Rehearsed {
    pending: Vec<Pending>,
    report: Report,
    applier: Applier,
}

/// A rehearsal's answers are nobody's news.
struct Nowhere;

impl Sink for Nowhere {
    fn written(&self, _: Arc<Object>) {}
    fn deleted(&self, _: &Reference) {}
}

impl Pass {
    /// The rest of the pass, in plan mode.
    pub(super) async fn run_planned(&self, primary: Arc<Object>, last: &[Rejected], ended: &mut Ended) {
        let deleting = primary.meta().deleting;
        let now = snapshot::time(Timestamp::now());
        let (mut snapshot, plan) = match self.decide(self.view.snapshot(primary), deleting, &now, last).await
        {
            Ok(decided) => decided,
            Err((primary, verdict)) => return self.conclude(&primary, None, verdict, ended).await,
        };
        let Rehearsed { pending, report, applier } = match self.rehearse(&snapshot, &plan).await {
            Ok(rehearsed) => rehearsed,
            Err(error) => return self.conclude(&snapshot.primary, None, write_failed(&error), ended).await,
        };
        ended.rejected = report.rejected().cloned().collect();
        if !ended.rejected.is_empty() {
            // It cannot be said what would happen, so there is nothing to approve.
            return self.conclude(&snapshot.primary, None, judge(&plan, &report), ended).await;
        }
        let kept = shown_plan(&snapshot.primary);
        let approved = snapshot.primary.meta().steering.as_ref().and_then(|steering| steering.approved());
        let uid = &snapshot.primary.meta().uid;
        match approval::stand(&pending, kept.as_deref(), approved, uid) {
            Standing::Nothing => {
                self.applier.adopt(&applier);
                match self.clear_plan(&snapshot.primary, ended).await {
                    Ok(primary) => {
                        plan.events.iter().for_each(|event| self.events.record(&primary, event));
                        self.conclude(&primary, plan.status.as_ref(), judge(&plan, &report), ended).await;
                    }
                    Err(error) => self.conclude(&snapshot.primary, None, write_failed(&error), ended).await,
                }
            }
            Standing::Approved(text) => {
                let begun = self.begin_approved(&snapshot.primary, kept.as_deref(), &text, ended).await;
                match begun {
                    Ok(primary) => snapshot.primary = primary,
                    Err(error) => {
                        return self.conclude(&snapshot.primary, None, write_failed(&error), ended).await;
                    }
                }
                tracing::info!(plan = %text.hash, "an approved plan is carried out");
                self.carry_out(&snapshot, plan, ended).await;
                self.finish_approved(&snapshot.primary, &text, ended).await;
            }
            Standing::Waits { plan: text, stale } => {
                let requeue = plan.requeue_after_ms.map(Duration::from_millis);
                self.wait_for_approval(
                    &snapshot.primary,
                    kept.as_deref(),
                    &pending,
                    (text, stale),
                    requeue,
                    ended,
                )
                .await;
            }
            Standing::TooMuch(actions) => {
                let message = format!(
                    "a plan of {actions} actions is more than an annotation holds, so nobody can approve it: use mode apply"
                );
                let verdict = Verdict::failed(Reason::LimitExceeded, Ending::Refused, &message);
                self.conclude(&snapshot.primary, None, verdict, ended).await;
            }
        }
    }

    /// All that the pass would write but for statuses and events, in the order in which it would.
    async fn rehearse(&self, snapshot: &Snapshot, plan: &Plan) -> Result<Rehearsed, WriteError> {
        let primary = &snapshot.primary;
        let rehearsal = Arc::new(Rehearsal::new(primary.meta().namespace.as_deref()));
        let applier = self.applier.rehearsing(&rehearsal, &snapshot.children);
        let controller = self.manifest_controller();
        let finalizer = controller.guard();
        if let Some(finalizer) = finalizer.filter(|_| !primary.meta().deleting) {
            finalizer::ensure(applier.writer(), &controller.primary, primary, finalizer).await?;
        }
        let related = snapshot.related_objects();
        let cx = ApplyContext {
            primary,
            primary_resource: &controller.primary,
            children: &snapshot.children,
            related: &related,
            sink: &Nowhere,
        };
        let report = applier.apply(plan, cx).await;
        if let Some(finalizer) = finalizer.filter(|_| releases(plan, &report)) {
            finalizer::remove(applier.writer(), &controller.primary, primary, finalizer).await?;
        }
        Ok(Rehearsed { pending: rehearsal.pending(), report, applier })
    }

    /// Makes sure that the annotation holds what is now done, and that the finalizer is there.
    async fn begin_approved(
        &self,
        primary: &Arc<Object>,
        kept: Option<&str>,
        plan: &PlanText,
        ended: &mut Ended,
    ) -> Result<Arc<Object>, WriteError> {
        let mut primary = Arc::clone(primary);
        if kept != Some(&plan.text) {
            primary = self.annotate(&primary, &[(PLAN_ANNOTATION, Some(&plan.text))], ended).await?;
        }
        let controller = self.manifest_controller();
        if let Some(finalizer) = controller.guard().filter(|_| !primary.meta().deleting) {
            let writer = self.applier.writer();
            let put = finalizer::ensure(writer, &controller.primary, &primary, finalizer).await?;
            primary = put.map_or(primary, |object| self.take_response(object, ended));
        }
        Ok(primary)
    }

    /// Takes the approval back once everything is done: the same plan another time needs another one. What failed keeps
    /// it, and is tried again.
    async fn finish_approved(&self, primary: &Arc<Object>, plan: &PlanText, ended: &mut Ended) {
        // Children of a roll-out that wait for each other are still covered, too.
        let unfinished = ended.failure.is_some() || ended.held.is_some() || !ended.rejected.is_empty();
        if ended.ending == Ending::Gone || unfinished {
            return;
        }
        // As the status left it.
        let primary = self.view.primary(&primary.key()).unwrap_or_else(|| Arc::clone(primary));
        match self.clear_plan(&primary, ended).await {
            Ok(primary) => {
                let event = Event {
                    severity: Severity::Normal,
                    reason: "PlanCarriedOut".to_owned(),
                    message: format!("plan {} was approved and is carried out", plan.hash),
                };
                self.events.record(&primary, &event);
            }
            // The next pass finds nothing pending and clears it.
            Err(error) => {
                tracing::debug!(%error, "the approval is not taken back yet");
                ended.ending = write_failed(&error).ending;
            }
        }
    }

    async fn wait_for_approval(
        &self,
        primary: &Arc<Object>,
        kept: Option<&str>,
        pending: &[Pending],
        (plan, stale): (PlanText, Option<String>),
        requeue: Option<Duration>,
        ended: &mut Ended,
    ) {
        let resource = &self.manifest_controller().primary;
        let message = awaiting(resource, primary, pending, &plan, stale.as_deref());
        let mut primary = Arc::clone(primary);
        if kept != Some(&plan.text) {
            match self.annotate(&primary, &[(PLAN_ANNOTATION, Some(&plan.text))], ended).await {
                Ok(annotated) => primary = annotated,
                Err(error) => return self.conclude(&primary, None, write_failed(&error), ended).await,
            }
            let event = Event {
                severity: Severity::Normal,
                reason: Reason::AwaitingApproval.as_str().to_owned(),
                message: message.clone(),
            };
            self.events.record(&primary, &event);
        }
        let verdict = Verdict::held(Reason::AwaitingApproval, Ending::Settled(requeue), &message);
        self.conclude(&primary, None, verdict, ended).await;
    }

    /// Takes plan and approval off, if they are there.
    pub(super) async fn clear_plan(
        &self,
        primary: &Arc<Object>,
        ended: &mut Ended,
    ) -> Result<Arc<Object>, WriteError> {
        let approved = primary.meta().steering.as_ref().is_some_and(|steering| steering.approved().is_some());
        if !approved && shown_plan(primary).is_none() {
            return Ok(Arc::clone(primary));
        }
        self.annotate(primary, &[(PLAN_ANNOTATION, None), (APPROVE_ANNOTATION, None)], ended).await
    }

    async fn annotate(
        &self,
        primary: &Object,
        annotations: &[(&str, Option<&str>)],
        ended: &mut Ended,
    ) -> Result<Arc<Object>, WriteError> {
        let resource = &self.manifest_controller().primary;
        let object = annotate(self.applier.writer(), resource, primary, annotations).await?;
        Ok(self.take_response(object, ended))
    }
}

/// The plan that the resource shows.
fn shown_plan(primary: &Object) -> Option<String> {
    // Parsed only where there is one, which is in plan mode alone.
    if !primary.json().contains(PLAN_ANNOTATION) {
        return None;
    }
    primary.field("metadata").pointer("/annotations")?.get(PLAN_ANNOTATION)?.as_str().map(str::to_owned)
}

/// What a reader of the condition can do about it, ready to be typed.
fn awaiting(
    resource: &Resource,
    primary: &Object,
    pending: &[Pending],
    plan: &PlanText,
    stale: Option<&str>,
) -> String {
    let hash = plan.hash;
    let stale = stale.map(|stale| format!("`{stale}` was approved, which is another plan than this. "));
    let namespace = primary.meta().namespace.as_deref().map(|namespace| format!(" -n {namespace}"));
    let dot = if resource.group.is_empty() { "" } else { "." };
    format!(
        "{}plan {hash}: {}; see annotation {PLAN_ANNOTATION}. To approve it: kubectl annotate {}{dot}{} {}{} --overwrite \
         {APPROVE_ANNOTATION}={hash}",
        stale.unwrap_or_default(),
        approval::count(pending),
        resource.plural,
        resource.group,
        primary.meta().name,
        namespace.unwrap_or_default(),
    )
}
