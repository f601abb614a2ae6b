//! Takes over fields that were written before the first server-side apply: by kubectl's client-side apply, by a
//! create-only POST of ours, by this plugin under another name, or before the API server tracked managers at all. Server-side apply removes a field that
//! it no longer names only if nobody else owns it, so without this such a field would stay for ever
//! (kubernetes/kubernetes#99003).
//!
//! As client-go's `csaupgrade` does: the old entries become one Apply entry of ours, in one patch that holds the
//! object's version. Only these managers are taken over. Others (an autoscaler, `kubectl scale`) write on purpose.

use pilothouse_model::fields::FieldSet;
use pilothouse_model::names::field_manager;
use pilothouse_model::object::Object;
use serde_json::{Value, json};

use crate::apply::Run;
use crate::write::Endpoint;
use crate::write_error::{Fault, WriteError};

/// Managers whose Update entries are predecessors of an apply: kubectl, and what the API server calls fields of
/// before its time.
const PREDECESSORS: [&str; 2] = ["kubectl-client-side-apply", "before-first-apply"];

impl Run<'_> {
    /// Makes the predecessors' entries of `live` ours, if it has some.
    pub(crate) async fn take_over(&self, at: &Endpoint<'_>, live: &Object) -> Result<(), WriteError> {
        let Some(text) = self.writer().get_text(at, None).await? else { return Ok(()) };
        let object: Value = serde_json::from_slice(&text).unwrap_or_default();
        let metadata = &object["metadata"];
        let Some(entries) = metadata["managedFields"].as_array() else { return Ok(()) };
        // Of this primary's children no two plugins are in charge at a time.
        let former = live.meta().managed.as_deref().filter(|_| self.is_controlled(live)).map(field_manager);
        let Some(entries) = taken_over(entries, self.writer().manager(), former.as_deref()) else {
            return Ok(());
        };
        let operations = json!([
            {"op": "test", "path": "/metadata/uid", "value": &*live.meta().uid},
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            // Another writer in between: 409, and the next pass looks again.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
        ]);
        match self.writer().json_patch(at, &operations).await {
            Ok(_) => Ok(()),
            Err(error) if error.fault == Fault::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// `managedFields` with the predecessors' entries as one Apply entry of `manager`; none if there are no predecessors.
/// `former`: who managed the object before, in whatever way.
fn taken_over(entries: &[Value], manager: &str, former: Option<&str>) -> Option<Vec<Value>> {
    let is_predecessor = |entry: &&Value| {
        let by = entry["manager"].as_str().unwrap_or_default();
        let updated = entry["operation"] == "Update" && (PREDECESSORS.contains(&by) || by == manager);
        entry.get("subresource").is_none_or(|subresource| subresource == "")
            && (updated || by != manager && former == Some(by))
    };
    let is_ours = |entry: &&Value| {
        entry["manager"] == manager
            && entry["operation"] == "Apply"
            && entry.get("subresource").is_none_or(|subresource| subresource == "")
    };
    let old: Vec<&Value> = entries.iter().filter(is_predecessor).collect();
    let first = *old.first()?;
    let ours = entries.iter().find(is_ours);
    let set = |entry: &Value| FieldSet::parse(&entry["fieldsV1"].to_string());
    let union =
        ours.into_iter().chain(old.iter().copied()).filter_map(set).reduce(|all, one| all.union(&one))?;
    let mut entry = ours.unwrap_or(first).clone();
    entry["manager"] = json!(manager);
    entry["operation"] = json!("Apply");
    entry["fieldsV1"] = union.into_value();
    let others = entries.iter().filter(|entry| !is_predecessor(entry) && !is_ours(entry));
    Some(others.cloned().chain([entry]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn predecessors_become_one_entry_of_ours_and_others_stay() {
        let mut status = entry("kubectl-client-side-apply", "Update", &json!({"f:status": {}}));
        status["subresource"] = json!("status");
        let scaled = entry("autoscaler", "Update", &json!({"f:spec": {"f:replicas": {}}}));
        let entries = [
            entry("kubectl-client-side-apply", "Update", &json!({"f:spec": {"f:a": {}}})),
            scaled.clone(),
            status.clone(),
            entry("pilothouse-x", "Update", &json!({"f:spec": {"f:b": {}}})),
        ];
        let ours = entry("pilothouse-x", "Apply", &json!({"f:spec": {"f:a": {}, "f:b": {}}}));
        let taken = |entries: &[Value], former| taken_over(entries, "pilothouse-x", former);
        assert_eq!(taken(&entries, None), Some(vec![scaled.clone(), status, ours.clone()]));
        assert_eq!(taken(&[scaled.clone(), ours.clone()], Some("pilothouse-x")), None);

        let theirs = entry("pilothouse-former", "Apply", &json!({"f:spec": {"f:a": {}, "f:b": {}}}));
        assert_eq!(
            taken(&[theirs.clone(), scaled.clone()], Some("pilothouse-former")),
            Some(vec![scaled, ours])
        );
        assert_eq!(taken(&[theirs], None), None);
    }
}
