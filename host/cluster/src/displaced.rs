//! Mends a list that server-side apply cannot: somebody changed the key of one of our items, as `kubectl edit` does
//! when it gives a Service's port another number. For the API server that item is theirs now and ours is missing, so an
//! apply would add ours beside it, and validation refuses the two for what they share: the port's name.
//!
//! The item that stands in the way is given our values in a patch of that list alone, which keeps what the API server
//! has allotted (a node port). Then the patch's ownership becomes that of an apply, and the apply itself follows.
//! Nothing is done unless duplicates are all that the API server finds wrong and the plugin may take fields from others;
//! further items of the list stay.

use pilothouse_model::object::Object;
use serde_json::{Value, json};

use crate::apply::{Done, Run, Wanted};
use crate::desired;
use crate::write::{Conflicts, Mode};
use crate::write_error::WriteError;

impl Run<'_> {
    /// Answers `refused`, the API server's word that an apply to `live` would repeat an item.
    pub(crate) async fn replace_displaced(
        &mut self,
        wanted: &Wanted<'_>,
        live: &Object,
        refused: WriteError,
    ) -> Done {
        if wanted.conflicts == Conflicts::Report {
            return Err(refused);
        }
        let at = &wanted.at;
        let live = self.look_again(at, live).await?;
        let content = live.to_value();
        let mended = refused.duplicates.iter().map(|field| mend(field, wanted.object, &content));
        let Some(mended) = mended.collect::<Option<Vec<_>>>() else { return Err(refused) };
        let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": &*live.meta().uid})];
        for (path, items) in mended {
            operations.push(json!({"op": "replace", "path": path, "value": items}));
        }
        // Another writer in between: 409, and the next pass looks again.
        let version = live.meta().resource_version.to_string();
        operations.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}));
        tracing::info!(object = %at, cause = %refused.message, "an item was changed into another; putting it back");
        let live = self.writer().json_patch(at, &Value::Array(operations)).await?;
        self.take_over(at, &live).await?;
        let body = desired::with_uid(wanted.object, &live.meta().uid);
        let response = self.writer().apply(at, &body, wanted.conflicts, Mode::Store).await?;
        Ok(self.applied(wanted, response))
    }
}

/// For a cause like `spec.ports[1].name`: the list's JSON pointer, and its items as they should be. None if the list
/// is not at one place of both objects: an index further up is that of an object which nobody has seen.
fn mend(field: &str, desired: &Value, live: &Value) -> Option<(String, Vec<Value>)> {
    let (list, rest) = field.split_once('[')?;
    let (_, name) = rest.split_once("].")?;
    if name.contains(['[', '.']) {
        return None;
    }
    let path = format!("/{}", list.replace('.', "/"));
    let (wanted, present) = (desired.pointer(&path)?.as_array()?, live.pointer(&path)?.as_array()?);
    let mut ours: Vec<Option<&Value>> = wanted.iter().map(Some).collect();
    let mut items = Vec::with_capacity(present.len());
    for item in present {
        let shared = |ours: &&Value| ours.get(name).is_some() && ours.get(name) == item.get(name);
        if let Some(one) = ours.iter_mut().find(|one| one.as_ref().is_some_and(shared)) {
            items.extend(one.take().map(|ours| overlaid(item, ours)));
        } else if !wanted.iter().any(|ours| shared(&ours)) {
            items.push(item.clone());
        }
    }
    items.extend(ours.into_iter().flatten().cloned());
    Some((path, items))
}

/// The item with our values in it.
fn overlaid(item: &Value, ours: &Value) -> Value {
    let mut item = item.clone();
    if let (Some(fields), Some(ours)) = (item.as_object_mut(), ours.as_object()) {
        fields.extend(ours.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_item_in_the_way_takes_our_values_and_others_stay() {
        let desired = json!({"spec": {"ports": [
            {"name": "pg", "port": 5432}, {"name": "admin", "port": 80}
        ]}});
        let live = json!({"spec": {"ports": [
            {"name": "metrics", "port": 9187},
            {"name": "pg", "port": 6432, "nodePort": 30001},
            {"name": "pg", "port": 7432}
        ]}});
        let expected = json!([
            {"name": "metrics", "port": 9187},
            {"name": "pg", "port": 5432, "nodePort": 30001},
            {"name": "admin", "port": 80}
        ]);
        let (path, items) = mend("spec.ports[1].name", &desired, &live).unwrap();
        assert_eq!((path.as_str(), Value::Array(items)), ("/spec/ports", expected));
    }

    #[test]
    fn what_is_no_list_of_both_is_left_to_the_user() {
        let object = json!({"spec": {"ports": [{"name": "a"}], "hosts": ["a"]}});
        for field in [
            "spec.hosts[0]",
            "spec.ports[0].list[1].name",
            "spec.none[0].name",
            "spec",
            "metadata.labels[a].b",
        ] {
            assert_eq!(mend(field, &object, &object), None, "{field}");
        }
    }
}
