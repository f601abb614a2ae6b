//! What the garbage collector does for children that an owner reference ties to their primary, the host does for those
//! that it tracks by label: it deletes them before it lets the primary go. The finalizer was there before the first of
//! them, so a crash anywhere, or a host that was down, leaves none behind; and which there are the API server is asked,
//! once for each such kind, as a cache may lag. As with the garbage collector, plan mode does not ask for approval, and
//! grants that were taken back do not matter.

use std::sync::Arc;

use pilothouse_cluster::apply::{ApplyContext, WriteResult};
use pilothouse_cluster::finalizer;
use pilothouse_model::condition::Reason;
use pilothouse_model::names::CLEANUP_FINALIZER;
use pilothouse_model::object::Object;
use pilothouse_model::plan::{Operation, Plan, Propagation, Write};

use super::verdict::{Verdict, changed_children, judge, write_failed};
use super::{Ended, Ending, Pass};

impl Pass {
    /// Whether the primary holds the plugin's own finalizer, so that its end is the plugin's business.
    pub(super) fn holds_own_finalizer(&self, primary: &Object) -> bool {
        let own = self.manifest_controller().finalizer.as_deref();
        own.is_some_and(|own| primary.meta().finalizers.iter().any(|one| **one == *own))
    }

    /// Whether it holds that one, or the host's.
    pub(super) fn holds_finalizer(&self, primary: &Object) -> bool {
        // An older version of the plugin may have had no finalizer of its own.
        let host = || primary.meta().finalizers.iter().any(|one| **one == *CLEANUP_FINALIZER);
        self.holds_own_finalizer(primary) || host()
    }

    /// Lets the primary go, once the children are gone that nobody else would delete.
    pub(super) async fn release(&self, primary: &Arc<Object>, ended: &mut Ended) {
        if !self.clean_up(primary, ended).await {
            return;
        }
        let controller = self.manifest_controller();
        let mut primary = Arc::clone(primary);
        for finalizer in controller.finalizer.as_deref().into_iter().chain([CLEANUP_FINALIZER]) {
            match finalizer::remove(self.applier.writer(), &controller.primary, &primary, finalizer).await {
                // At once, so that no pass that begins before the event sees an object that is to be released again.
                Ok(Some(object)) if object.meta().finalizers.is_empty() => {
                    ended.written.push(object.meta().resource_version);
                    self.view.removed_primary(&object);
                    break;
                }
                Ok(Some(object)) => primary = self.take_response(object, ended),
                Ok(None) => {}
                Err(error) => return self.conclude(&primary, None, write_failed(&error), ended).await,
            }
        }
        ended.ending = Ending::Gone;
    }

    /// Deletes the tracked children. Whether all are gone; if not, the pass is concluded.
    async fn clean_up(&self, primary: &Arc<Object>, ended: &mut Ended) -> bool {
        let (children, complete) = match self.view.tracked(primary.meta()).await {
            Ok(tracked) => tracked,
            Err(error) => {
                let message = format!("the children that nothing else would delete: {error}");
                let ending = Ending::Failed(error.retry_after());
                let verdict = Verdict::failed(Reason::WriteFailed, ending, &message);
                self.conclude(primary, None, verdict, ended).await;
                return false;
            }
        };
        let plan = deletions(&children, |child| {
            let declared = self.manifest_controller().child(child.kind())?;
            Some(declared.resource.plural.clone())
        });
        if plan.writes.is_empty() {
            return true;
        }
        let cx = ApplyContext {
            primary,
            primary_resource: &self.manifest_controller().primary,
            children: &children,
            related: &[],
            sink: &*self.view,
        };
        let report = self.applier.apply(&plan, cx).await;
        ended.written.extend(report.written_versions());
        ended.changed_children |= changed_children(&report);
        self.count_writes(&report);
        let waits = report
            .entries
            .iter()
            .zip(&plan.writes)
            .find(|(entry, _)| matches!(entry.result, WriteResult::Deleted { gone: false, .. }));
        let verdict = if report.rejected().next().is_some() {
            judge(&plan, &report)
        } else if let Some((_, write)) = waits {
            // Its end is an event, which brings the next pass.
            let message = format!("{} is being deleted, as nothing else would do it", write.target);
            Verdict::held(Reason::CleaningUp, Ending::Settled(None), &message)
        } else if !complete {
            let message = format!("{} children are deleted, and there are more", plan.writes.len());
            Verdict::held(Reason::CleaningUp, Ending::Settled(None), &message)
        } else {
            return true;
        };
        self.conclude(primary, None, verdict, ended).await;
        false
    }
}

/// Deletions of those children that no owner reference ties to their primary, each of that very object.
fn deletions(children: &[Arc<Object>], plural: impl Fn(&Object) -> Option<String>) -> Plan {
    let tracked = children
        .iter()
        .filter(|child| child.meta().owner.as_ref().is_some_and(|owner| owner.tracked_in.is_some()));
    let writes = (0..).zip(tracked).filter_map(|(index, child)| {
        let operation =
            Operation::Delete { propagation: Propagation::Background, grace_period_seconds: None };
        let (target, plural) = (child.reference(), plural(child)?);
        Some(Write { index, target, plural, after: Vec::new(), operation })
    });
    Plan { writes: writes.collect(), ..Plan::default() }
}

#[cfg(test)]
mod tests {
    use pilothouse_model::names::{MANAGED_LABEL, OWNER_ANNOTATION, OWNER_UID_LABEL};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_what_the_garbage_collector_leaves_is_deleted_by_its_uid() {
        let object = |name: &str, metadata: Value| {
            let mut metadata = metadata;
            metadata["name"] = json!(name);
            metadata["uid"] = json!(format!("uid-{name}"));
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            Arc::new(Object::from_value(&object).unwrap())
        };
        let owned = json!({"namespace": "shop", "ownerReferences": [
            {"apiVersion": "example.com/v1", "kind": "Web", "name": "w", "uid": "u-1", "controller": true}]});
        let tracked = json!({"namespace": "far", "labels": {MANAGED_LABEL: "web", OWNER_UID_LABEL: "u-1"},
            "annotations": {OWNER_ANNOTATION: "Web.example.com/shop/w"}});
        let children = [object("a", owned), object("b", tracked)];
        let plan = deletions(&children, |_| Some("configmaps".to_owned()));
        let [write] = &plan.writes[..] else { panic!("{plan:?}") };
        assert_eq!(
            (write.target.to_string(), write.target.uid.as_deref()),
            ("ConfigMap.v1 far/b".to_owned(), Some("uid-b"))
        );
    }
}
