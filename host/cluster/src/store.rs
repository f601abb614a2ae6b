//! The objects of one watch, shared between all who read them. What is decided here is who may look and who hears of
//! changes; what the state is, `index` decides.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pilothouse_model::kind::Kind;
use pilothouse_model::manifest::Projection;
use pilothouse_model::names::{self, Key};
use pilothouse_model::object::Object;
use pilothouse_model::owner::Owner;

use crate::groups::Grouping;
use crate::index::{self, Delta, Index, ListToken};
use crate::listeners::{Interest, Listener, Listeners};

/// The objects of one watch as far as they are known.
pub struct Store {
    kind: Arc<Kind>,
    projection: Projection,
    index: RwLock<Index>,
    /// Told without the lock; copied only if somebody joins at that moment.
    listeners: RwLock<Arc<Listeners>>,
    common: Mutex<Common>,
}

impl Store {
    /// Empty. Of `managedFields` it keeps the own entry of the plugin that the object's label names.
    pub fn new(kind: Kind, projection: Projection, grouping: Grouping) -> Self {
        Self {
            kind: Arc::new(kind),
            projection,
            index: RwLock::new(Index::new(grouping)),
            listeners: RwLock::default(),
            common: Mutex::default(),
        }
    }

    /// What the objects are.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The first list has been taken in: what is not here is not there.
    pub fn is_complete(&self) -> bool {
        self.read().is_complete()
    }

    /// One object, as much of it as the projection keeps.
    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.read().get(key).cloned()
    }

    /// All objects whose controlling owner has this UID, by key, whoever manages them. Costs as much as there are of
    /// them.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Object>> {
        sorted(self.read().owned_by(uid))
    }

    /// All objects, by key.
    pub fn objects(&self) -> Vec<Arc<Object>> {
        sorted(self.read().objects().cloned().collect())
    }

    /// The objects that `wanted` is true for, by key. It looks at every object: not for what is done per event.
    pub fn select(&self, wanted: impl FnMut(&Object) -> bool) -> Vec<Arc<Object>> {
        let mut wanted = wanted;
        sorted(self.read().objects().filter(|object| wanted(object)).cloned().collect())
    }

    /// The objects of one namespace and with one of these values of the label that the watch's [`Grouping`] names, by
    /// key, as far as `wanted` is true for them. What the grouping does not tell apart is left out of account. Costs as
    /// much as there are of them.
    pub fn select_in(
        &self,
        namespace: Option<&str>,
        values: Option<&BTreeSet<String>>,
        wanted: impl Fn(&Object) -> bool,
    ) -> Vec<Arc<Object>> {
        let index = self.read();
        let Some(values) = values else {
            return sorted(index.group(namespace, None).filter(|object| wanted(object)).cloned().collect());
        };
        let groups = values.iter().flat_map(|value| index.group(namespace, Some(value)));
        sorted(groups.filter(|object| wanted(object)).cloned().collect())
    }

    /// All keys, in no order.
    pub fn keys(&self) -> Vec<Key> {
        self.read().objects().map(|object| object.key()).collect()
    }

    /// The UIDs of all, in no order.
    pub fn uids(&self) -> Vec<Arc<str>> {
        self.read().objects().map(|object| Arc::clone(&object.meta().uid)).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of JSON in all of them.
    pub fn json_bytes(&self) -> usize {
        self.read().json_bytes()
    }

    /// Takes in the answer to one of our own writes: the whole object as it is now. Older events do not overwrite it,
    /// and if it is older than what is known it is ignored, so it may come late.
    pub fn upsert_response(&self, object: Object) {
        let object = self.prepare(object);
        self.change(|index, out| index.put_answer(object, out));
    }

    /// Takes in that the object with this UID is gone for good: a DELETE that left no object behind. One that waits
    /// for finalizers or for a grace period is still there and belongs into [`Store::upsert_response`].
    pub fn remove_response(&self, key: &Key, uid: &str) {
        self.change(|index, out| index.gone_answer(key, uid, out));
    }

    /// Gives an object that was just read the form in which it is kept.
    pub(crate) fn prepare(&self, mut object: Object) -> Arc<Object> {
        object.stamp(&self.kind);
        object.project(&self.projection);
        let manager = object.meta().managed.as_deref().map(names::field_manager);
        object.keep_manager(&manager.unwrap_or_default());
        let mut common = self.common.lock().unwrap_or_else(PoisonError::into_inner);
        object.share_texts(|text| common.texts.share(text));
        object.share_owner(|owner| common.owners.share(owner));
        drop(common);
        Arc::new(object)
    }

    pub(crate) fn list_began(&self) -> ListToken {
        self.write().list_began()
    }

    /// As [`Store::prepare`], but keeps the memory of the object that is there already if it is the same version.
    pub(crate) fn prepare_item(&self, object: Object) -> Arc<Object> {
        let same = self.read().same(&object).cloned();
        same.unwrap_or_else(|| self.prepare(object))
    }

    /// Makes one change and tells the listeners.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Index, &mut Vec<Delta>)) {
        let mut deltas = Vec::new();
        change(&mut self.write(), &mut deltas);
        if deltas.is_empty() {
            return;
        }
        let listeners = Arc::clone(&self.listeners.read().unwrap_or_else(PoisonError::into_inner));
        for delta in &deltas {
            listeners.tell(delta);
        }
    }

    /// From now on `listener` hears of every change of the objects that interest it, and first of what is there
    /// already, as [`index::Change::Initial`]. A change at the same moment may come before that.
    pub(crate) fn listen(&self, interest: &Interest, listener: Listener) -> u64 {
        let id = self.change_listeners(|listeners| listeners.join(interest, Arc::clone(&listener)));
        if self.is_complete() {
            let there = self.select(|object| interest.is_in(object));
            for object in &there {
                listener(&index::initial(object));
            }
        }
        id
    }

    pub(crate) fn unlisten(&self, interest: &Interest, id: u64) {
        self.change_listeners(|listeners| listeners.leave(interest, id));
    }

    /// Listeners that have joined and not left; for tests of what is left behind.
    pub fn listeners(&self) -> usize {
        self.listeners.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn change_listeners<T>(&self, change: impl FnOnce(&mut Listeners) -> T) -> T {
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut listeners))
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Store {
    /// Never the content: it may be Secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("kind", &self.kind.to_string())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

fn sorted(mut objects: Vec<Arc<Object>>) -> Vec<Arc<Object>> {
    objects.sort_by(|one, other| {
        let (one, other) = (one.meta(), other.meta());
        (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
    });
    objects
}

/// What many objects have in common: their namespace, their owner, and `fieldsV1` of our own entry, which is the same
/// for all children of one shape and half as large as the object.
#[derive(Default)]
struct Common {
    texts: Shared<str>,
    owners: Shared<Owner>,
}

/// Values kept before it is looked for the first time which of them nobody uses any more.
const SWEEP_AT_MIN: usize = 64;

/// Values of which each is kept once.
struct Shared<T: ?Sized> {
    all: HashSet<Arc<T>>,
    /// Above this many the ones that nobody uses any more are dropped.
    sweep_at: usize,
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self { all: HashSet::new(), sweep_at: SWEEP_AT_MIN }
    }
}

impl<T: ?Sized + Eq + Hash> Shared<T> {
    /// Puts the shared value in the place of an equal one.
    fn share(&mut self, value: &mut Arc<T>) {
        if let Some(same) = self.all.get(value) {
            *value = Arc::clone(same);
            return;
        }
        if self.all.len() >= self.sweep_at {
            self.all.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = SWEEP_AT_MIN.max(self.all.len() * 2);
        }
        self.all.insert(Arc::clone(value));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::index::Change;

    fn pod(name: &str, version: u64) -> Value {
        json!({
            "metadata": {
                "name": name, "namespace": "n", "uid": name, "resourceVersion": version.to_string(),
                "labels": {"pilothouse.dev/managed": "x"},
                "managedFields": [
                    {"manager": "pilothouse-x", "operation": "Apply", "fieldsV1": {"f:spec": {"f:a": {}}}},
                    {"manager": "other", "operation": "Apply", "fieldsV1": {"f:spec": {"f:b": {}}}}
                ]
            },
            "spec": {"a": 1}
        })
    }

    fn object(value: Value) -> Object {
        serde_json::from_value(value).unwrap()
    }

    fn store(projection: Projection) -> Store {
        Store::new(Kind::new("", "v1", "Pod"), projection, Grouping::default())
    }

    #[test]
    fn objects_are_kept_stamped_pruned_and_with_shared_texts() {
        let store = store(Projection::Full);
        let (one, other) = (store.prepare(object(pod("a", 1))), store.prepare(object(pod("b", 2))));
        assert!(
            one.json().starts_with(r#"{"apiVersion":"v1","kind":"Pod""#)
                && !one.json().contains("managedFields")
        );
        assert!(one.has_foreign_managers());
        assert!(Arc::ptr_eq(one.own_fields().unwrap(), other.own_fields().unwrap()));
        assert!(std::ptr::eq(one.kind(), other.kind()));
    }

    #[test]
    fn texts_that_nobody_uses_are_dropped() {
        let mut texts = Shared::<str>::default();
        let shared = |texts: &mut Shared<str>, text: &str| {
            let mut text = Arc::from(text);
            texts.share(&mut text);
            text
        };
        let kept = shared(&mut texts, "kept");
        for n in 0..1_000 {
            shared(&mut texts, &n.to_string());
        }
        assert!(texts.all.len() <= SWEEP_AT_MIN + 1, "{}", texts.all.len());
        assert!(Arc::ptr_eq(&kept, &shared(&mut texts, "kept")));
    }

    #[test]
    fn an_answer_enters_a_store_as_its_projection_says() {
        let some = serde_json::from_value(json!({"fields": [".spec.a"]})).unwrap();
        for (projection, spec) in [(Projection::Metadata, Value::Null), (some, json!({"a": 1}))] {
            let store = store(projection);
            let mut answer = pod("a", 1);
            answer["spec"]["b"] = json!(2);
            store.upsert_response(object(answer));
            let kept = &store.objects()[0];
            assert_eq!((kept.field("spec"), kept.is_partial()), (spec, true));
            assert!(kept.own_fields().is_some());
        }
    }

    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<(String, Change)>>>);

    impl Heard {
        fn listener(&self) -> Listener {
            let heard = Arc::clone(&self.0);
            Arc::new(move |delta: &Delta| heard.lock().unwrap().push((delta.key.to_string(), delta.change)))
        }

        fn take(&self) -> Vec<(String, Change)> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    fn told(name: &str, change: Change) -> (String, Change) {
        (format!("n/{name}"), change)
    }

    #[test]
    fn a_listener_hears_what_is_there_and_then_what_changes_until_it_leaves() {
        let store = store(Projection::Full);
        let began = store.list_began();
        let items = vec![store.prepare(object(pod("a", 1)))];
        store.change(|index, out| index.replace(items, 1, began, out));
        let heard = Heard::default();
        let id = store.listen(&Interest::All, heard.listener());
        store.upsert_response(object(pod("b", 2)));
        store.remove_response(&Key::namespaced("n", "a"), "a");
        store.unlisten(&Interest::All, id);
        store.upsert_response(object(pod("c", 3)));
        let (initial, changed) = (told("a", Change::Initial), told("b", Change::Changed));
        assert_eq!(heard.take(), [initial, changed, told("a", Change::Deleted)]);
        assert_eq!(store.objects().iter().map(|o| o.meta().name.to_string()).collect::<Vec<_>>(), ["b", "c"]);
    }

    fn child(name: &str, version: u64, plugin: Option<&str>) -> Object {
        let mut pod = pod(name, version);
        pod["metadata"]["labels"] = json!({"pilothouse.dev/managed": plugin});
        pod["metadata"]["managedFields"][0]["manager"] =
            format!("pilothouse-{}", plugin.unwrap_or("x")).into();
        object(pod)
    }

    #[test]
    fn a_plugin_hears_of_its_own_children_and_of_those_that_it_loses_or_wins() {
        let store = store(Projection::Full);
        let began = store.list_began();
        let items = [child("a", 1, Some("x")), child("b", 2, Some("y"))].map(|child| store.prepare(child));
        store.change(|index, out| index.replace(items.to_vec(), 2, began, out));
        let (x, y, z) = (Heard::default(), Heard::default(), Heard::default());
        let interest = |plugin: &str| Interest::Managed(plugin.into());
        let ids = [("x", &x), ("y", &y), ("z", &z)]
            .map(|(plugin, heard)| (interest(plugin), store.listen(&interest(plugin), heard.listener())));
        assert_eq!(x.take(), [told("a", Change::Initial)]);
        assert_eq!(y.take(), [told("b", Change::Initial)]);
        let put = |object: Object| {
            let object = store.prepare(object);
            store.change(|index, out| index.put(object, out));
        };
        put(child("a", 3, Some("x")));
        assert_eq!((x.take(), y.take()), (vec![told("a", Change::Changed)], vec![]));
        put(child("a", 4, Some("y")));
        assert_eq!(
            (x.take(), y.take()),
            (vec![told("a", Change::Deleted)], vec![told("a", Change::Changed)])
        );
        assert_eq!(store.objects()[0].own_fields().unwrap().as_ref(), r#"{"f:spec":{"f:a":{}}}"#);
        put(child("a", 5, None));
        assert_eq!((x.take(), y.take()), (vec![], vec![told("a", Change::Deleted)]));
        assert!(store.objects()[0].own_fields().is_none());
        assert!(z.take().is_empty());
        for (interest, id) in ids {
            store.unlisten(&interest, id);
        }
        assert_eq!(store.listeners(), 0);
    }

    #[test]
    fn a_thousand_plugins_cost_one_call_for_each_change() {
        let store = store(Projection::Full);
        let calls = Arc::new(Mutex::new(0));
        for n in 0..1_000 {
            let calls = Arc::clone(&calls);
            let count = Arc::new(move |_: &Delta| *calls.lock().unwrap() += 1);
            store.listen(&Interest::Managed(format!("p{n}").into()), count);
        }
        for n in 0..100 {
            store.upsert_response(child(&format!("c{n}"), n + 1, Some(&format!("p{n}"))));
        }
        assert_eq!(*calls.lock().unwrap(), 100);
    }
}
