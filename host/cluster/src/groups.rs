//! Objects of a watch by namespace and by the value of one label, so that a pass finds those of its primary without
//! looking at all of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pilothouse_model::names::Key;
use pilothouse_model::object::Object;

/// By what objects are grouped. By nothing, unless said otherwise: then there are no groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Grouping {
    /// Each namespace has groups of its own.
    pub by_namespace: bool,
    /// Each value of this label has a group. Objects without the label are in none.
    pub by_label: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Groups {
    grouping: Grouping,
    members: HashMap<Group, BTreeSet<Key>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Group {
    namespace: Option<Arc<str>>,
    value: Option<Box<str>>,
}

impl Groups {
    pub(crate) fn new(grouping: Grouping) -> Self {
        Self { grouping, members: HashMap::new() }
    }

    /// The keys of one group. What does not tell groups apart is not looked at.
    pub(crate) fn members(&self, namespace: Option<&str>, value: Option<&str>) -> impl Iterator<Item = &Key> {
        let group = Group {
            namespace: namespace.filter(|_| self.grouping.by_namespace).map(Arc::from),
            value: value.filter(|_| self.grouping.by_label.is_some()).map(Box::from),
        };
        self.members.get(&group).into_iter().flatten()
    }

    pub(crate) fn insert(&mut self, object: &Object) {
        if let Some(group) = self.group(object) {
            self.members.entry(group).or_default().insert(object.key());
        }
    }

    pub(crate) fn remove(&mut self, object: &Object) {
        let Some(group) = self.group(object) else { return };
        if let Some(members) = self.members.get_mut(&group) {
            members.remove(&object.key());
            if members.is_empty() {
                self.members.remove(&group);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.members.clear();
    }

    /// The group that an object is in.
    fn group(&self, object: &Object) -> Option<Group> {
        let Grouping { by_namespace, by_label } = &self.grouping;
        if !by_namespace && by_label.is_none() {
            return None;
        }
        let value = match by_label {
            Some(label) => Some(object.labels().remove(label)?.into()),
            None => None,
        };
        Some(Group { namespace: object.meta().namespace.clone().filter(|_| *by_namespace), value })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(namespace: &str, name: &str, app: Option<&str>) -> Object {
        let labels = app.map(|app| json!({"app": app}));
        let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
        Object::from_value(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})).unwrap()
    }

    fn names(groups: &Groups, namespace: Option<&str>, value: Option<&str>) -> Vec<String> {
        groups.members(namespace, value).map(ToString::to_string).collect()
    }

    #[test]
    fn objects_are_found_by_what_tells_groups_apart() {
        let by_label = || Some("app".to_owned());
        let all = [
            object("n", "b", Some("x")),
            object("n", "a", Some("x")),
            object("m", "c", Some("x")),
            object("n", "d", None),
        ];
        let filled = |grouping| {
            let mut groups = Groups::new(grouping);
            for object in &all {
                groups.insert(object);
            }
            groups
        };
        let mut both = filled(Grouping { by_namespace: true, by_label: by_label() });
        assert_eq!(names(&both, Some("n"), Some("x")), ["n/a", "n/b"]);
        assert!(names(&both, Some("n"), Some("y")).is_empty());
        let label = filled(Grouping { by_namespace: false, by_label: by_label() });
        assert_eq!(names(&label, Some("ignored"), Some("x")), ["m/c", "n/a", "n/b"]);
        let namespace = filled(Grouping { by_namespace: true, by_label: None });
        assert_eq!(names(&namespace, Some("n"), None), ["n/a", "n/b", "n/d"]);
        assert!(filled(Grouping::default()).members.is_empty());
        for object in &all {
            both.remove(object);
        }
        assert!(both.members.is_empty());
    }
}
