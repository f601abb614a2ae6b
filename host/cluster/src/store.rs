//! The objects of one watch, shared between all who read them. What is decided here is who may look and who hears of
//! changes; what the state is, `index` decides.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pilothouse_model::kind::Kind;
use pilothouse_model::manifest::Projection;
use pilothouse_model::names::Key;
use pilothouse_model::object::Object;

use crate::index::{self, Delta, Index, ListToken};

/// Hears of each change of a store. It is called by whoever made the change, with no lock of the store held, and must
/// neither block nor take long: it puts keys into a queue. Of two changes at the same moment the later may be told
/// first; what is true stands in the store.
///
/// A function rather than a channel: a channel would need a bound, and then a place to wait for a slow reader, which
/// would hold up the others.
pub type Listener = Arc<dyn Fn(&Delta) + Send + Sync>;

/// The objects of one watch as far as they are known.
pub struct Store {
    kind: Arc<Kind>,
    projection: Projection,
    manager: Option<String>,
    index: RwLock<Index>,
    listeners: RwLock<Listeners>,
    texts: Mutex<Texts>,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    all: Vec<(u64, Listener)>,
}

impl Store {
    /// Empty. Of `managedFields` it keeps the entry of `manager`.
    pub fn new(kind: Kind, projection: Projection, manager: Option<String>) -> Self {
        Self {
            kind: Arc::new(kind),
            projection,
            manager,
            index: RwLock::default(),
            listeners: RwLock::default(),
            texts: Mutex::default(),
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

    /// All objects whose controlling owner has this UID, by key. Costs as much as there are of them.
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

    /// All keys, in no order.
    pub fn keys(&self) -> Vec<Key> {
        self.read().objects().map(|object| object.key()).collect()
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
        object.keep_manager(self.manager.as_deref().unwrap_or_default());
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        object.share_texts(|text| texts.share(text));
        drop(texts);
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
        let listeners = self.listeners.read().unwrap_or_else(PoisonError::into_inner);
        let listeners: Vec<Listener> =
            listeners.all.iter().map(|(_, listener)| Arc::clone(listener)).collect();
        for delta in &deltas {
            for listener in &listeners {
                listener(delta);
            }
        }
    }

    /// From now on `listener` hears of every change, and first of what is there already, as [`index::Change::Initial`].
    /// A change at the same moment may come before that.
    pub(crate) fn listen(&self, listener: Listener) -> u64 {
        let id = {
            let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
            listeners.next += 1;
            let id = listeners.next;
            listeners.all.push((id, Arc::clone(&listener)));
            id
        };
        if self.is_complete() {
            self.objects().iter().for_each(|object| listener(&index::initial(object)));
        }
        id
    }

    pub(crate) fn unlisten(&self, id: u64) {
        self.listeners.write().unwrap_or_else(PoisonError::into_inner).all.retain(|(other, _)| *other != id);
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

/// Texts that many objects have in common: their namespace, what they say of their owner, and `fieldsV1` of our own
/// entry, which is the same for all children of one shape and half as large as the object.
#[derive(Default)]
struct Texts {
    all: HashSet<Arc<str>>,
    /// Above this many the ones that nobody uses any more are dropped.
    sweep_at: usize,
}

impl Texts {
    const SWEEP_AT_MIN: usize = 64;

    /// Puts the shared text in the place of an equal one.
    fn share(&mut self, text: &mut Arc<str>) {
        if let Some(same) = self.all.get(text) {
            *text = Arc::clone(same);
            return;
        }
        if self.all.len() >= self.sweep_at.max(Self::SWEEP_AT_MIN) {
            self.all.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = self.all.len() * 2;
        }
        self.all.insert(Arc::clone(text));
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
        Store::new(Kind::new("", "v1", "Pod"), projection, Some("pilothouse-x".to_owned()))
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
        let mut texts = Texts::default();
        let shared = |texts: &mut Texts, text: &str| {
            let mut text = Arc::from(text);
            texts.share(&mut text);
            text
        };
        let kept = shared(&mut texts, "kept");
        for n in 0..1_000 {
            shared(&mut texts, &n.to_string());
        }
        assert!(texts.all.len() <= Texts::SWEEP_AT_MIN + 1, "{}", texts.all.len());
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

    #[test]
    fn a_listener_hears_what_is_there_and_then_what_changes_until_it_leaves() {
        let store = store(Projection::Full);
        let began = store.list_began();
        let items = vec![store.prepare(object(pod("a", 1)))];
        store.change(|index, out| index.replace(items, 1, began, out));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let id = store.listen({
            let heard = Arc::clone(&heard);
            Arc::new(move |delta: &Delta| heard.lock().unwrap().push((delta.key.to_string(), delta.change)))
        });
        store.upsert_response(object(pod("b", 2)));
        store.remove_response(&Key::namespaced("n", "a"), "a");
        store.unlisten(id);
        store.upsert_response(object(pod("c", 3)));
        assert_eq!(
            *heard.lock().unwrap(),
            [
                ("n/a".into(), Change::Initial),
                ("n/b".into(), Change::Changed),
                ("n/a".into(), Change::Deleted)
            ]
        );
        assert_eq!(store.objects().iter().map(|o| o.meta().name.to_string()).collect::<Vec<_>>(), ["b", "c"]);
    }
}
