//! Which primary an object belongs to. Pure.

use std::sync::Arc;

use pilothouse_model::manifest::{Resource, Scope};
use pilothouse_model::names::Key;
use pilothouse_model::owner::Owner;

use crate::index::Delta;

/// The key of the primary that a controlling owner reference names, if it is of the kind `primary`.
///
/// An owner reference says no namespace: the owner is in the namespace of the object that it owns (`namespace`), or in
/// none. An object that is tied to its owner by label and annotation says it. The version does not matter: a kind is the same in all of its versions.
pub fn owner_key(owner: &Owner, namespace: Option<&Arc<str>>, primary: &Resource) -> Option<Key> {
    if !owner.is_a(primary) {
        return None;
    }
    let namespace = match primary.scope {
        Scope::Namespaced => Some(Arc::clone(owner.tracked_in.as_ref().or(namespace)?)),
        Scope::Cluster => None,
    };
    Some(Key { namespace, name: Arc::clone(&owner.name) })
}

impl Delta {
    /// The keys of the primaries of kind `primary` that this change concerns: the owner, and who was it before.
    pub fn owner_keys(&self, primary: &Resource) -> impl Iterator<Item = Key> {
        let owner = self.object.meta().owner.as_ref();
        let before = self.previous.as_ref().and_then(|previous| previous.meta().owner.as_ref());
        let before = before.filter(|before| owner.is_none_or(|owner| owner.uid != before.uid));
        let keys = [owner, before].map(|owner| owner_key(owner?, self.key.namespace.as_ref(), primary));
        keys.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(group: &str, kind: &str) -> Owner {
        let (kind, group) = (kind.into(), group.into());
        Owner { uid: "u".into(), name: "w".into(), kind, group, tracked_in: None }
    }

    fn primary(scope: Scope) -> Resource {
        Resource {
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Web".into(),
            plural: "webs".into(),
            scope,
        }
    }

    #[test]
    fn the_owner_is_in_the_namespace_of_its_child_or_in_none() {
        let namespace = Some(Arc::from("shop"));
        let key = |owner: &Owner, scope| owner_key(owner, namespace.as_ref(), &primary(scope));
        let web = owner("example.com", "Web");
        assert_eq!(key(&web, Scope::Namespaced), Some(Key::namespaced("shop", "w")));
        assert_eq!(key(&web, Scope::Cluster), Some(Key::cluster("w")));
        assert_eq!(key(&owner("example.com", "Other"), Scope::Namespaced), None);
        assert_eq!(key(&owner("", "Web"), Scope::Namespaced), None);
        let elsewhere = Owner { tracked_in: Some("far".into()), ..web };
        assert_eq!(key(&elsewhere, Scope::Namespaced), Some(Key::namespaced("far", "w")));
        assert_eq!(
            owner_key(&elsewhere, None, &primary(Scope::Namespaced)),
            Some(Key::namespaced("far", "w"))
        );
    }
}
