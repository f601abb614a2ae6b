//! How an object is tied to the primary that it belongs to.
//!
//! By a controller reference, where Kubernetes allows one: in the primary's namespace, or anywhere if the primary has
//! none. Everywhere else (another namespace, or none) the garbage collector would take the reference for a broken one
//! and delete the object. There a label says the primary's UID and an annotation its kind, namespace and name, and the
//! host does what the garbage collector would: it deletes such children before it lets their primary go.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::manifest::Resource;
use crate::names::{OWNER_ANNOTATION, OWNER_UID_LABEL};
use crate::object::Object;

/// Whom an object belongs to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Owner {
    /// `uid`
    pub uid: Arc<str>,
    /// `name`
    pub name: Arc<str>,
    /// `kind`
    pub kind: Arc<str>,
    /// Group of its `apiVersion`. The version does not matter: an object is the same in all.
    pub group: Arc<str>,
    /// Where the owner is, if the object is tied to it by label and annotation; none for a reference, which says no
    /// namespace.
    pub tracked_in: Option<Arc<str>>,
}

impl Owner {
    /// From the two texts of a tracked object.
    pub(crate) fn tracked(uid: Arc<str>, annotation: &str) -> Option<Self> {
        let mut parts = annotation.split('/');
        let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        let whole = parts.next().is_none() && ![kind, namespace, name, &*uid].contains(&"");
        whole.then(|| Self {
            uid,
            name: name.into(),
            kind: kind.into(),
            group: group.into(),
            tracked_in: Some(namespace.into()),
        })
    }

    /// Whether this is about a predecessor of `primary`: one of its kind and place with another UID. Names are unique, so
    /// that one is gone.
    pub fn is_predecessor_of(&self, primary: &Object) -> bool {
        let (kind, meta) = (primary.kind(), primary.meta());
        self.uid != meta.uid
            && (&*self.kind, &*self.group) == (kind.kind.as_str(), kind.group.as_str())
            && self.name == meta.name
            && self.tracked_in.is_some()
            && self.tracked_in == meta.namespace
    }

    /// Whether it is of this kind.
    pub fn is_a(&self, resource: &Resource) -> bool {
        *self.kind == *resource.kind && *self.group == *resource.group
    }
}

/// Whether an object in `namespace` can have an owner reference to this primary.
pub fn can_refer(primary: &Object, namespace: Option<&str>) -> bool {
    let own = primary.meta().namespace.as_deref();
    own.is_none() || own == namespace
}

/// Writes into `metadata`, whose labels and annotations are mappings or not there, what ties an object in `namespace` to
/// its primary.
pub(crate) fn tie(metadata: &mut Map<String, Value>, namespace: Option<&str>, primary: &Object) {
    let (kind, meta) = (primary.kind(), primary.meta());
    if can_refer(primary, namespace) {
        let reference = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind,
            "name": &*meta.name,
            "uid": &*meta.uid,
            "controller": true,
            "blockOwnerDeletion": true
        });
        metadata.insert("ownerReferences".to_owned(), json!([reference]));
        return;
    }
    let dot = if kind.group.is_empty() { "" } else { "." };
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let owner = format!("{}{dot}{}/{namespace}/{}", kind.kind, kind.group, meta.name);
    for (field, key, value) in
        [("labels", OWNER_UID_LABEL, meta.uid.to_string()), ("annotations", OWNER_ANNOTATION, owner)]
    {
        let map = metadata.entry(field).or_insert(Value::Null);
        if map.is_null() {
            *map = json!({});
        }
        map[key] = Value::String(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(api_version: &str, uid: &str) -> Object {
        let metadata = json!({"name": "w", "namespace": "shop", "uid": uid});
        Object::from_value(&json!({"apiVersion": api_version, "kind": "Web", "metadata": metadata})).unwrap()
    }

    fn tied(namespace: Option<&str>, primary: &Object) -> Object {
        let mut metadata =
            json!({"name": "c", "namespace": namespace, "labels": {"a": "b"}, "annotations": null});
        tie(metadata.as_object_mut().unwrap(), namespace, primary);
        Object::from_value(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap()
    }

    #[test]
    fn what_is_tied_is_found_again_wherever_it_is() {
        for api_version in ["example.com/v1", "v1"] {
            let primary = primary(api_version, "u-1");
            for (namespace, tracked) in [(Some("shop"), false), (Some("other"), true), (None, true)] {
                let child = tied(namespace, &primary);
                let owner = child.meta().owner.as_ref().unwrap();
                assert_eq!((&*owner.uid, &*owner.name, &*owner.kind), ("u-1", "w", "Web"));
                assert_eq!(*owner.group, *primary.kind().group);
                assert_eq!(owner.tracked_in.as_deref(), tracked.then_some("shop"));
                assert_eq!(child.labels()["a"], "b");
                assert_eq!(child.field("metadata").get("ownerReferences").is_some(), !tracked);
            }
        }
    }

    #[test]
    fn a_predecessor_is_known_by_its_place() {
        let (old, new) = (primary("example.com/v1", "u-1"), primary("example.com/v1", "u-2"));
        let owner = |namespace| tied(namespace, &old).meta().owner.clone().unwrap();
        assert!(owner(None).is_predecessor_of(&new) && !owner(None).is_predecessor_of(&old));
        assert!(!owner(Some("shop")).is_predecessor_of(&new), "the garbage collector takes that one");
        assert!(!owner(None).is_predecessor_of(&primary("other.com/v1", "u-2")));
    }

    #[test]
    fn a_reference_goes_before_a_label_and_half_a_tie_is_none() {
        let reference =
            json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u-9", "controller": true}]);
        let child = |metadata: &Value| {
            Object::from_value(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
                .unwrap()
                .meta()
                .owner
                .clone()
        };
        let (label, annotation) =
            (json!({OWNER_UID_LABEL: "u-1"}), json!({OWNER_ANNOTATION: "Web.example.com/shop/w"}));
        for first in ["labels", "ownerReferences"] {
            let mut metadata = Map::new();
            metadata
                .insert(first.to_owned(), if first == "labels" { label.clone() } else { reference.clone() });
            metadata.insert("annotations".to_owned(), annotation.clone());
            metadata.entry("labels").or_insert(label.clone());
            metadata.entry("ownerReferences").or_insert(reference.clone());
            assert_eq!(&*child(&Value::Object(metadata)).unwrap().uid, "u-9");
        }
        assert_eq!(child(&json!({"labels": label})), None);
        assert_eq!(child(&json!({"annotations": annotation})), None);
        for wrong in ["", "Web.example.com/shop", "Web.example.com/shop/w/x", "/shop/w", "Web//w"] {
            assert_eq!(
                child(&json!({"labels": label, "annotations": {OWNER_ANNOTATION: wrong}})),
                None,
                "{wrong}"
            );
        }
    }
}
