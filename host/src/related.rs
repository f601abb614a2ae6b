//! The objects that the manifest's related rules show to a primary: which watch has them, which of them it sees, and
//! which primaries a change of one concerns.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pilothouse_cluster::store::Store;
use pilothouse_cluster::watches::Query;
use pilothouse_cluster::{Change, Delta, Grouping};
use pilothouse_model::interests::{Interest, Interests, What};
use pilothouse_model::manifest::{Controller, Related, Scope};
use pilothouse_model::names::Key;
use pilothouse_model::object::{Meta, Object};
use pilothouse_model::selector::{self, Selector};

/// The related rules of one controller.
pub(crate) struct Rules {
    rules: Vec<Related>,
    primaries: Mutex<Primaries>,
}

#[derive(Default)]
struct Primaries {
    interests: Interests,
    /// What is filled into selectors changes with the UID only.
    uids: HashMap<Key, Arc<str>>,
}

impl Rules {
    /// No primary is known yet.
    pub(crate) fn new(controller: &Controller) -> Self {
        Self { rules: controller.related.clone(), primaries: Mutex::default() }
    }

    /// Takes in that a primary came or went. Of two changes at the same moment the later may be told first: one that was
    /// created again by now is not forgotten with its predecessor.
    pub(crate) fn primary(&self, delta: &Delta) {
        let gone = delta.change == Change::Deleted;
        if gone && self.primaries().uids.get(&delta.key).is_some_and(|known| *known != delta.uid) {
            return;
        }
        self.refresh(&delta.key, (!gone).then_some(&delta.object));
    }

    /// Takes in what there is of a primary. One that is told after its end stays until the pass that follows finds nothing
    /// there.
    pub(crate) fn refresh(&self, key: &Key, primary: Option<&Object>) {
        if !self.rules.iter().any(|rule| rule.selector.is_some()) {
            return;
        }
        let mut primaries = self.primaries();
        let Some(meta) = primary.map(Object::meta) else {
            primaries.uids.remove(key);
            primaries.interests.remove(key);
            return;
        };
        if primaries.uids.get(key) == Some(&meta.uid) {
            return;
        }
        let interests = self.rules.iter().enumerate().filter_map(|(at, rule)| {
            let what = What::Selected(expanded(rule, meta)?);
            Some(Interest { rule: at, namespace: scope(rule, meta), what })
        });
        primaries.interests.set(key, interests);
        primaries.uids.insert(key.clone(), Arc::clone(&meta.uid));
    }

    /// The primaries that a change of an object of one rule concerns: it matches now, or did before.
    pub(crate) fn concerned(&self, rule: usize, delta: &Delta) -> Vec<Key> {
        let states: Vec<&Object> = [Some(&delta.object), delta.previous.as_ref()]
            .into_iter()
            .flatten()
            .map(|object| &**object)
            .collect();
        self.primaries().interests.concerned(rule, &states).into_iter().collect()
    }

    fn primaries(&self) -> MutexGuard<'_, Primaries> {
        self.primaries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is watched for a rule: no more than its selector can match for any primary.
pub(crate) fn query(rule: &Related, primary: Scope) -> Query {
    let query = Query::new(rule.resource.clone()).projected(rule.projection.clone());
    let Some(template) = &rule.selector else { return query };
    // The manifest was checked to have a selector here.
    let common = selector::common(template).unwrap_or_default();
    let by_namespace = rule.resource.scope == Scope::Namespaced && primary == Scope::Namespaced;
    let query = query.with_fields(rule.field_selector.as_deref().unwrap_or_default());
    query.labelled(&common).grouped(Grouping { by_namespace, by_label: selector::telling_label(template) })
}

/// The objects of a rule that a primary sees, by namespace and name. Costs as much as there are of them and of those
/// that a watch cannot tell from them.
pub(crate) fn seen(rule: &Related, primary: &Meta, store: &Store) -> Vec<Arc<Object>> {
    let Some(selector) = expanded(rule, primary) else { return Vec::new() };
    let namespace = scope(rule, primary);
    let near = |object: &Object| namespace.is_none() || object.meta().namespace == namespace;
    let label = rule.selector.as_deref().and_then(selector::telling_label);
    let values: Option<&BTreeSet<String>> = label.and_then(|label| selector.values(&label));
    store.select_in(namespace.as_deref(), values, |object| near(object) && selector.matches(&object.labels()))
}

/// Where a primary sees the objects of a rule; none: wherever they are. Objects of another namespace than the primary's
/// own are seen by cluster-scoped primaries alone.
fn scope(rule: &Related, primary: &Meta) -> Option<Arc<str>> {
    primary.namespace.clone().filter(|_| rule.resource.scope == Scope::Namespaced)
}

/// None if it matches nothing: a name of more than 63 characters is no label value, so nothing bears it.
fn expanded(rule: &Related, primary: &Meta) -> Option<Selector> {
    let template = rule.selector.as_deref()?;
    selector::expand(template, primary).and_then(|text| Selector::parse(&text)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, uid: &str, labels: &serde_json::Value) -> Arc<Object> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": "1", "labels": labels}
        });
        Arc::new(Object::from_value(&object).unwrap())
    }

    fn delta(change: Change, object: Arc<Object>) -> Delta {
        Delta {
            key: object.key(),
            uid: Arc::clone(&object.meta().uid),
            change,
            resource_version: 1,
            edited: true,
            object,
            previous: None,
        }
    }

    /// Answers to writes and events are told by different tasks.
    #[test]
    fn a_primary_that_was_created_again_is_not_forgotten_with_its_predecessor() {
        let config_map = json!({"version": "v1", "kind": "ConfigMap", "plural": "configmaps"});
        let manifest = json!({"name": "web", "version": "1", "controllers": [{
            "primary": config_map,
            "related": [{"name": "r", "resource": config_map, "selector": "of=$(name)"}]
        }]});
        let manifest = pilothouse_model::manifest::Manifest::parse(&manifest.to_string()).unwrap();
        let rules = Rules::new(&manifest.controllers[0]);
        let (old, new) = (object("p", "old", &json!({})), object("p", "new", &json!({})));
        let related = delta(Change::Changed, object("r", "r", &json!({"of": "p"})));
        rules.primary(&delta(Change::Changed, Arc::clone(&old)));
        rules.primary(&delta(Change::Changed, Arc::clone(&new)));
        rules.primary(&delta(Change::Deleted, old));
        assert_eq!(rules.concerned(0, &related), [new.key()]);
        rules.primary(&delta(Change::Deleted, new));
        assert_eq!(rules.concerned(0, &related), []);
    }
}
