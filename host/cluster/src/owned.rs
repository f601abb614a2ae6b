//! Whether an object is ours: nothing foreign is taken, and nothing is adopted on behalf of a primary that goes.

use std::sync::Arc;

use pilothouse_model::names::{MANAGED_LABEL, OWNER_ANNOTATION, OWNER_UID_LABEL};
use pilothouse_model::object::Object;
use pilothouse_model::plan::Write;
use serde_json::json;

use crate::apply::{Done, Run, Wanted, going};
use crate::write::Endpoint;
use crate::write_error::{Fault, WriteError};

impl Run<'_> {
    /// The child that this write is for, from the snapshot or, if it is not there, from the API server. An error if
    /// it is not ours: an object is ours whose controller is the primary, or that has none and bears our label. One that
    /// is tied by label to a primary which is not there any more was left behind, and is the present one's.
    pub(crate) async fn find(
        &self,
        write: &Write,
        at: &Endpoint<'_>,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let known = self.seen.get(&write.target).filter(|known| self.is_controlled(known));
        if known.is_some() {
            return Ok(known);
        }
        let Some(found) = self.writer().get(at).await? else { return Ok(None) };
        let plugin = self.applier.name();
        match &found.meta().owner {
            Some(_) if self.is_controlled(&found) => {}
            None if found.meta().managed.as_deref() == Some(plugin) => self.check_may_adopt(at).await?,
            Some(owner) if owner.is_predecessor_of(self.cx.primary) => self.check_may_adopt(at).await?,
            owner => {
                let owner = owner.as_ref().map_or_else(
                    || format!("has no controller and no label {MANAGED_LABEL}: {plugin}"),
                    |owner| format!("is controlled by {} {}", owner.kind, owner.name),
                );
                return Err(WriteError::here(Fault::NotOwned, format!("{at} exists and {owner}")));
            }
        }
        Ok(Some(Arc::new(found)))
    }

    /// An object that lost its owner may have been let go on purpose, by a deletion of the primary that orphans its
    /// children: its event may come before that of the primary. Adopted then, it would be deleted after all. So the
    /// primary itself is asked, as Kubernetes' own controllers do.
    async fn check_may_adopt(&self, at: &Endpoint<'_>) -> Result<(), WriteError> {
        let primary = self.cx.primary;
        if primary.meta().deleting {
            // The plugin knows, and wants it all the same.
            return Ok(());
        }
        let now = self.writer().get(&Endpoint::of_object(self.cx.primary_resource, primary)).await?;
        if now.is_some_and(|now| now.meta().uid == primary.meta().uid && !now.meta().deleting) {
            return Ok(());
        }
        Err(WriteError::here(Fault::Precondition, format!("{at} is not adopted, as its primary goes")))
    }

    pub(crate) fn is_controlled(&self, object: &Object) -> bool {
        object.meta().owner.as_ref().is_some_and(|owner| owner.uid == self.cx.primary.meta().uid)
    }

    /// Ours, and not to be seen in the next snapshot: somebody took off its label or its owner.
    pub(crate) fn is_stray(&self, live: &Object) -> bool {
        let labelled = || live.meta().managed.as_deref() == Some(self.applier.name());
        !self.is_controlled(live) || !self.seen.was_in_snapshot(live) && !labelled()
    }

    /// Makes the primary the controller of an object that is to be left as it is otherwise, or that its update strategy
    /// shall judge when the next snapshot shows it.
    pub(crate) async fn adopt(&mut self, wanted: &Wanted<'_>, live: &Object) -> Done {
        if live.meta().deleting {
            return Err(going(&wanted.at));
        }
        let metadata = live.field("metadata");
        let ours = &wanted.object["metadata"];
        let mut patch = json!({"metadata": {
            // Another writer in between: 409, and the next pass looks again.
            "uid": &*live.meta().uid, "resourceVersion": metadata["resourceVersion"],
        }});
        for (field, tag) in
            [("labels", MANAGED_LABEL), ("labels", OWNER_UID_LABEL), ("annotations", OWNER_ANNOTATION)]
        {
            if let Some(value) = ours[field].get(tag) {
                patch["metadata"][field][tag] = value.clone();
            }
        }
        if let Some(own) = ours["ownerReferences"].as_array().filter(|_| !self.is_controlled(live)) {
            let others = metadata["ownerReferences"].as_array().into_iter().flatten();
            // A user may have made ours one that does not control.
            let others = others.filter(|other| own.iter().all(|own| own["uid"] != other["uid"]));
            patch["metadata"]["ownerReferences"] = others.chain(own).cloned().collect();
        }
        let response = self.writer().merge_patch(&wanted.at, None, &patch).await?;
        Ok(self.written(response))
    }
}
