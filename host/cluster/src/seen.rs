//! What a pass knows of the objects that it writes to: its snapshot, and the answers to its own writes since.

use std::collections::HashMap;
use std::sync::Arc;

use pilothouse_model::kind::{Kind, Reference};
use pilothouse_model::object::Object;

/// Objects by kind and name; a plan of 1,000 children must not search 1,000 objects for each.
pub(crate) struct Seen<'a> {
    snapshot: HashMap<Place<'a>, &'a Arc<Object>>,
    /// None: what the snapshot showed is gone, and whether something else bears the name is not known.
    since: HashMap<Reference, Option<Arc<Object>>>,
}

#[derive(PartialEq, Eq, Hash)]
struct Place<'a> {
    kind: &'a Kind,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> Place<'a> {
    fn of_object(object: &'a Object) -> Self {
        let meta = object.meta();
        Self { kind: object.kind(), namespace: meta.namespace.as_deref(), name: &meta.name }
    }

    fn of_reference(reference: &'a Reference) -> Self {
        Self { kind: &reference.kind, namespace: reference.namespace.as_deref(), name: &reference.name }
    }
}

impl<'a> Seen<'a> {
    pub(crate) fn new(objects: impl Iterator<Item = &'a Arc<Object>>) -> Self {
        let snapshot = objects.map(|object| (Place::of_object(object), object)).collect();
        Self { snapshot, since: HashMap::new() }
    }

    /// The object of this name, whatever its UID.
    pub(crate) fn get(&self, reference: &Reference) -> Option<Arc<Object>> {
        if !self.since.is_empty()
            && let Some(since) = self.since.get(&without_uid(reference))
        {
            return since.clone();
        }
        self.snapshot.get(&Place::of_reference(reference)).map(|object| Arc::clone(object))
    }

    /// Whether the snapshot showed this very object.
    pub(crate) fn was_in_snapshot(&self, object: &Object) -> bool {
        let shown = self.snapshot.get(&Place::of_object(object));
        shown.is_some_and(|shown| shown.meta().uid == object.meta().uid)
    }

    pub(crate) fn written(&mut self, object: Arc<Object>) {
        self.since.insert(without_uid(&object.reference()), Some(object));
    }

    pub(crate) fn gone(&mut self, reference: &Reference) {
        self.since.insert(without_uid(reference), None);
    }
}

fn without_uid(reference: &Reference) -> Reference {
    Reference { uid: None, ..reference.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, uid: &str, version: &str) -> Arc<Object> {
        let metadata = json!({"name": name, "namespace": "n", "uid": uid, "resourceVersion": version});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        Arc::new(Object::from_value(&object).unwrap())
    }

    #[test]
    fn answers_are_newer_than_the_snapshot() {
        let snapshot = [object("a", "1", "1"), object("b", "2", "1")];
        let mut seen = Seen::new(snapshot.iter());
        let version = |seen: &Seen<'_>, at: usize| {
            seen.get(&snapshot[at].reference()).map(|object| object.meta().resource_version)
        };
        assert_eq!((version(&seen, 0), version(&seen, 1)), (Some(1), Some(1)));
        seen.written(object("a", "1", "2"));
        seen.gone(&snapshot[1].reference());
        assert_eq!((version(&seen, 0), version(&seen, 1)), (Some(2), None));
        seen.written(object("b", "3", "4"));
        assert_eq!(version(&seen, 1), Some(4));
        assert!(seen.was_in_snapshot(&snapshot[1]) && !seen.was_in_snapshot(&object("b", "3", "4")));
        let elsewhere = Reference { namespace: None, ..snapshot[0].reference() };
        assert!(seen.get(&elsewhere).is_none());
    }
}
