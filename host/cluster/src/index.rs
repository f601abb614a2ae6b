//! What is known of the objects of one watch, and the rules by which three sources that disagree about time become
//! one state: lists, watch events, and the answers to our own writes.
//!
//! Versions (`metadata.resourceVersion`) are numbers that count up over all objects of a kind. Lists are consistent:
//! a list at version L shows every change up to L. A watch shows changes in the order of their versions, so at any
//! moment everything up to [`Index::seen`] is known, as far as the watch selects it. From that follows:
//!
//! 1. An answer at or below `seen` is ignored: the watch has shown it already, or something newer, or that the object
//!    is gone or not selected.
//! 2. An answer above `seen` is taken at once and marked as *ahead*. No older event overwrites it.
//! 3. When the watch passes the version of an object that is ahead without showing it, the watch does not select that
//!    object, and it goes.
//! 4. An object that we deleted, or whose name an answer shows to be another's, goes at once and its UID is buried: events that were on their way do not bring it back.
//!    It rests until a list that began later replaces everything, or its place is needed. (An event that says "gone"
//!    is no sign: it may be an older one, of an object that was not selected for a while.)
//! 5. A list replaces everything but what is ahead of it.
//! 6. A list whose version is below `seen` comes from an API server that was set back to an older state, from a backup
//!    of etcd: it replaces everything, and each object is told of as gone and as new, so that nobody holds on to a
//!    version that never was.
//!
//! In the end the state is that of the API server, in whatever order the three arrived; a property test says so.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use pilothouse_model::names::Key;
use pilothouse_model::object::{Meta, Object};

use crate::groups::{Grouping, Groups};

/// UIDs buried at a time. They matter for the round trip of one deletion, and an API server carries out a few hundred
/// deletions in a second. One that is dug out too early may flash up until its event arrives.
const BURIED_MAX: usize = 1_024;

/// What happened to an object of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// Which object.
    pub key: Key,
    /// Its UID.
    pub uid: Arc<str>,
    /// What happened.
    pub change: Change,
    /// Its version after the change; of a deleted object the last that was known.
    pub resource_version: u64,
    /// Somebody changed what is wanted: it is new, its generation changed (of kinds that have none: anything), what it
    /// says to the host by annotations, or its deletion began. Not set by a change of status alone.
    pub edited: bool,
    /// The object after the change; of a deleted object the last that was known.
    pub object: Arc<Object>,
    /// The same object before, if it was known.
    pub previous: Option<Arc<Object>>,
}

impl Delta {
    /// What this change is to somebody who sees the object as it was before and not as it is now.
    pub(crate) fn left(&self) -> Option<Self> {
        let object = Arc::clone(self.previous.as_ref()?);
        Some(Self { change: Change::Deleted, object, previous: None, ..self.clone() })
    }
}

/// See [`Delta`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Part of the first list, or there already when the listener joined.
    Initial,
    /// Created or changed.
    Changed,
    /// Gone, or no longer selected.
    Deleted,
}

#[derive(Debug)]
struct Held {
    object: Arc<Object>,
    /// Known from an answer; the watch has not come that far.
    ahead: bool,
}

/// When a list began; see [`Index::list_began`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListToken(u64);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Index {
    live: HashMap<Key, Held>,
    /// By UID of the owner.
    by_owner: HashMap<Arc<str>, Vec<Arc<Object>>>,
    groups: Groups,
    /// Objects that are ahead, by version. May name one that no longer is: [`Index::pass`] looks.
    ahead: BTreeMap<u64, Key>,
    /// By UID, the number of lists that had begun before it was buried.
    buried: HashMap<Arc<str>, u64>,
    /// The same UIDs, oldest first.
    burials: VecDeque<Arc<str>>,
    lists_begun: u64,
    seen: u64,
    complete: bool,
    json_bytes: usize,
}

impl Index {
    pub(crate) fn new(grouping: Grouping) -> Self {
        Self { groups: Groups::new(grouping), ..Self::default() }
    }

    /// The objects of one group; see [`Groups::members`].
    pub(crate) fn group(
        &self,
        namespace: Option<&str>,
        value: Option<&str>,
    ) -> impl Iterator<Item = &Arc<Object>> {
        self.groups.members(namespace, value).filter_map(|key| self.get(key))
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.live.get(key).map(|held| &held.object)
    }

    pub(crate) fn owned_by(&self, uid: &str) -> Vec<Arc<Object>> {
        self.by_owner.get(uid).cloned().unwrap_or_default()
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.live.values().map(|held| &held.object)
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Bytes of JSON text in all objects.
    pub(crate) fn json_bytes(&self) -> usize {
        self.json_bytes
    }

    /// The first list has been taken in.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// To be called before the request of a list is sent.
    pub(crate) fn list_began(&mut self) -> ListToken {
        self.lists_begun += 1;
        ListToken(self.lists_begun)
    }

    /// The object as it is kept already, if this is the same version of it.
    pub(crate) fn same(&self, object: &Object) -> Option<&Arc<Object>> {
        self.live
            .get(&object.key())
            .map(|held| &held.object)
            .filter(|held| is_same(held.meta(), object.meta()))
    }

    /// A whole list at one version, rules 5 and 6.
    pub(crate) fn replace(
        &mut self,
        items: Vec<Arc<Object>>,
        version: u64,
        began: ListToken,
        out: &mut Vec<Delta>,
    ) {
        let first = !std::mem::replace(&mut self.complete, true);
        // Versions that are no numbers are 0, and tell nothing.
        let set_back = version > 0 && version < self.seen;
        let mut before = std::mem::take(&mut self.live);
        (self.by_owner, self.json_bytes, self.seen) = (HashMap::new(), 0, version);
        self.groups.clear();
        if set_back {
            for held in before.values_mut() {
                tell(out, Change::Deleted, &held.object, None);
                held.ahead = false;
            }
            self.ahead.clear();
            self.buried.clear();
        }
        self.ahead.retain(|&ahead, _| ahead > version);
        self.buried.retain(|_, lists_begun| *lists_begun >= began.0);
        self.burials.retain(|uid| self.buried.contains_key(uid));
        for item in items {
            if self.buried.contains_key(&item.meta().uid) {
                // The deletion came while the list was on its way; the watch from `version` on will show it.
                continue;
            }
            let held = before.remove(&item.key());
            let previous = held.as_ref().map(|held| Arc::clone(&held.object)).filter(|_| !set_back);
            let kept = match held {
                Some(held) if held.ahead && held.object.meta().resource_version > version => held,
                Some(held) if is_same(held.object.meta(), item.meta()) => Held { ahead: false, ..held },
                _ => Held { object: item, ahead: false },
            };
            let changed = previous.as_ref().is_none_or(|previous| !Arc::ptr_eq(previous, &kept.object));
            if first || changed {
                let change = if first { Change::Initial } else { Change::Changed };
                tell(out, change, &kept.object, previous.as_ref());
            }
            self.insert(kept);
        }
        for (_, held) in before {
            if held.ahead && held.object.meta().resource_version > version {
                self.insert(held);
            } else if !set_back {
                tell(out, Change::Deleted, &held.object, None);
            }
        }
    }

    /// The watch shows an object that is new or changed.
    pub(crate) fn put(&mut self, object: Arc<Object>, out: &mut Vec<Delta>) {
        let version = object.meta().resource_version;
        if !self.buried.contains_key(&object.meta().uid) {
            let held = self.live.get(&object.key());
            let newer_is_held =
                held.is_some_and(|held| held.ahead && held.object.meta().resource_version > version);
            if newer_is_held && !self.ahead.contains_key(&version) {
                // Somebody else's change that came before our own write: its answer said nothing of it. What is held
                // is newer, so it is not told as what was before.
                let edited = is_edit(object.meta(), held.map(|held| held.object.meta()));
                out.push(Delta { edited, ..delta(Change::Changed, &object, None) });
            }
            if !newer_is_held {
                if !held.is_some_and(|held| is_same(held.object.meta(), object.meta())) {
                    tell(out, Change::Changed, &object, held.map(|held| &held.object));
                }
                self.remove(&object.key());
                self.insert(Held { object, ahead: false });
            }
        }
        self.pass(version.saturating_sub(1), out);
        self.seen = self.seen.max(version);
    }

    /// The watch shows that an object is gone or no longer selected.
    pub(crate) fn gone(&mut self, object: &Object, out: &mut Vec<Delta>) {
        let meta = object.meta();
        let goes = self.get(&object.key()).is_some_and(|held| held.meta().uid == meta.uid)
            && self.live.get(&object.key()).is_some_and(|held| {
                // Ahead and newer: it was changed back so that it is selected again. Rule 3 will see to it.
                !held.ahead || held.object.meta().resource_version <= meta.resource_version
            });
        if goes && let Some(held) = self.remove(&object.key()) {
            tell(out, Change::Deleted, &held.object, None);
        }
        self.pass(meta.resource_version.saturating_sub(1), out);
        self.seen = self.seen.max(meta.resource_version);
    }

    /// The watch says that it has shown everything up to this version.
    pub(crate) fn bookmark(&mut self, version: u64, out: &mut Vec<Delta>) {
        self.pass(version, out);
        self.seen = self.seen.max(version);
    }

    /// An answer to one of our own writes: the object as it is after it. Rules 1 and 2.
    pub(crate) fn put_answer(&mut self, object: Arc<Object>, out: &mut Vec<Delta>) {
        let version = object.meta().resource_version;
        let held = self.get(&object.key());
        if version <= self.seen
            || self.buried.contains_key(&object.meta().uid)
            || held.is_some_and(|held| held.meta().resource_version >= version)
        {
            return;
        }
        tell(out, Change::Changed, &object, held);
        if let Some(before) = self.remove(&object.key())
            && before.object.meta().uid != object.meta().uid
        {
            // Its name was taken after it had gone.
            self.bury(&before.object.meta().uid);
        }
        self.ahead.insert(version, object.key());
        self.insert(Held { object, ahead: true });
    }

    /// An answer to one of our own deletions: this very object is gone. Rule 4.
    pub(crate) fn gone_answer(&mut self, key: &Key, uid: &str, out: &mut Vec<Delta>) {
        // If it is not held, the watch has shown the deletion already and nothing can bring the object back.
        if self.get(key).is_none_or(|held| &*held.meta().uid != uid) {
            return;
        }
        if let Some(held) = self.remove(key) {
            self.bury(&held.object.meta().uid);
            tell(out, Change::Deleted, &held.object, None);
        }
    }

    /// Everything up to `version` has been shown: what is still ahead there is not selected, rule 3.
    fn pass(&mut self, version: u64, out: &mut Vec<Delta>) {
        while let Some(entry) = self.ahead.first_entry().filter(|entry| *entry.key() <= version) {
            let (ahead, key) = entry.remove_entry();
            let is_it = |held: &Held| held.ahead && held.object.meta().resource_version == ahead;
            if self.live.get(&key).is_some_and(is_it)
                && let Some(held) = self.remove(&key)
            {
                tell(out, Change::Deleted, &held.object, None);
            }
        }
    }

    fn bury(&mut self, uid: &Arc<str>) {
        if self.burials.len() >= BURIED_MAX
            && let Some(oldest) = self.burials.pop_front()
        {
            self.buried.remove(&oldest);
        }
        self.buried.insert(Arc::clone(uid), self.lists_begun);
        self.burials.push_back(Arc::clone(uid));
    }

    fn insert(&mut self, held: Held) {
        let meta = held.object.meta();
        if let Some(owner) = &meta.owner {
            self.by_owner.entry(Arc::clone(&owner.uid)).or_default().push(Arc::clone(&held.object));
        }
        self.groups.insert(&held.object);
        self.json_bytes += held.object.json().len();
        self.live.insert(held.object.key(), held);
    }

    fn remove(&mut self, key: &Key) -> Option<Held> {
        let held = self.live.remove(key)?;
        self.groups.remove(&held.object);
        self.json_bytes -= held.object.json().len();
        if let Some(owner) = &held.object.meta().owner
            && let Some(owned) = self.by_owner.get_mut(&owner.uid)
        {
            owned.retain(|other| !Arc::ptr_eq(other, &held.object));
            if owned.is_empty() {
                self.by_owner.remove(&owner.uid);
            }
        }
        Some(held)
    }
}

fn is_same(one: &Meta, other: &Meta) -> bool {
    one.uid == other.uid && one.resource_version == other.resource_version
}

/// Tells what happened to the object of a name, which was as in `before`. Another object of the same name is told as
/// gone first: what somebody keeps of it is kept by its UID.
fn tell(out: &mut Vec<Delta>, change: Change, object: &Arc<Object>, before: Option<&Arc<Object>>) {
    let same = before.filter(|before| before.meta().uid == object.meta().uid);
    if let (Some(other), None) = (before, same) {
        out.push(delta(Change::Deleted, other, None));
    }
    out.push(delta(change, object, same));
}

fn delta(change: Change, object: &Arc<Object>, previous: Option<&Arc<Object>>) -> Delta {
    let meta = object.meta();
    Delta {
        key: object.key(),
        uid: Arc::clone(&meta.uid),
        change,
        resource_version: meta.resource_version,
        edited: is_edit(meta, previous.map(|previous| previous.meta())),
        object: Arc::clone(object),
        previous: previous.cloned(),
    }
}

fn is_edit(meta: &Meta, before: Option<&Meta>) -> bool {
    before.is_none_or(|before| {
        before.uid != meta.uid
            || before.generation != meta.generation
            || meta.generation == 0
            || before.deleting != meta.deleting
            || before.steering != meta.steering
    })
}

/// What a listener hears of an object that was there before it joined.
pub(crate) fn initial(object: &Arc<Object>) -> Delta {
    delta(Change::Initial, object, None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(name: &str, uid: &str, version: u64, owner: Option<&str>) -> Arc<Object> {
        let owners: Vec<_> = owner
            .iter()
            .map(
                |uid| json!({"apiVersion": "v1", "kind": "Web", "name": "w", "uid": uid, "controller": true}),
            )
            .collect();
        let value = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
                         "ownerReferences": owners}
        });
        Arc::new(Object::from_value(&value).unwrap())
    }

    fn state(index: &Index) -> Vec<(String, u64)> {
        let mut state: Vec<_> =
            index.objects().map(|o| (o.meta().uid.to_string(), o.meta().resource_version)).collect();
        state.sort();
        state
    }

    #[test]
    fn objects_are_found_by_owner_and_a_new_owner_is_told_apart() {
        let (mut index, mut out) = (Index::default(), Vec::new());
        index.put(object("a", "1", 1, Some("o1")), &mut out);
        index.put(object("b", "2", 2, Some("o1")), &mut out);
        assert_eq!(index.owned_by("o1").len(), 2);
        out.clear();
        index.put(object("a", "1", 3, Some("o2")), &mut out);
        assert_eq!((index.owned_by("o1").len(), index.owned_by("o2").len()), (1, 1));
        let owner = |object: &Object| object.meta().owner.as_ref().unwrap().uid.to_string();
        assert_eq!(owner(&out[0].object), "o2");
        assert_eq!(owner(out[0].previous.as_ref().unwrap()), "o1");
        index.gone(&object("a", "1", 4, Some("o2")), &mut out);
        assert!(index.owned_by("o2").is_empty() && !index.by_owner.contains_key("o2"));
    }

    #[test]
    fn an_answer_is_there_at_once_and_its_event_is_quiet() {
        let (mut index, mut out) = (Index::default(), Vec::new());
        let began = index.list_began();
        index.replace(vec![object("a", "1", 5, None)], 9, began, &mut out);
        assert_eq!(out[0].change, Change::Initial);
        out.clear();
        index.put_answer(object("a", "1", 12, None), &mut out);
        assert_eq!((state(&index), out.len()), (vec![("1".into(), 12)], 1));
        out.clear();
        index.put(object("a", "1", 11, None), &mut out); // somebody else's change, before ours
        assert_eq!(out[0].resource_version, 11, "news, though its object is held in a newer version");
        index.put(object("a", "1", 12, None), &mut out);
        assert_eq!((state(&index), out.len()), (vec![("1".into(), 12)], 1));
        out.clear();
        index.put_answer(object("a", "1", 14, None), &mut out);
        index.put_answer(object("a", "1", 15, None), &mut out);
        out.clear();
        index.put(object("a", "1", 14, None), &mut out); // an earlier write of ours
        index.put(object("a", "1", 15, None), &mut out);
        assert_eq!(out.len(), 0);
        index.put_answer(object("a", "1", 11, None), &mut out); // late
        assert_eq!((state(&index), out.len()), (vec![("1".into(), 15)], 0));
    }

    #[test]
    fn a_late_answer_does_not_resurrect() {
        let (mut index, mut out) = (Index::default(), Vec::new());
        index.put(object("a", "1", 5, None), &mut out);
        index.gone(&object("a", "1", 6, None), &mut out);
        index.put_answer(object("a", "1", 5, None), &mut out);
        assert_eq!(index.len(), 0);
    }

    #[test]
    fn a_deleted_object_is_gone_at_once_and_stays_so_until_its_successor() {
        let (mut index, mut out) = (Index::default(), Vec::new());
        index.put(object("a", "1", 5, None), &mut out);
        let began = index.list_began();
        let key = object("a", "1", 5, None).key();
        index.gone_answer(&key, "other", &mut out);
        assert_eq!(index.len(), 1, "another UID is another object");
        index.gone_answer(&key, "1", &mut out);
        index.put(object("a", "1", 6, None), &mut out); // on its way when we deleted
        index.replace(vec![object("a", "1", 6, None)], 6, began, &mut out); // so was this
        assert_eq!(index.len(), 0);
        index.gone(&object("a", "1", 8, None), &mut out);
        index.put(object("a", "2", 9, None), &mut out);
        assert_eq!(state(&index), [("2".into(), 9)]);
        let began = index.list_began();
        index.replace(vec![object("a", "2", 9, None)], 9, began, &mut out);
        assert!(index.buried.is_empty() && index.burials.is_empty());
    }

    #[test]
    fn an_answer_that_the_watch_does_not_select_goes_when_the_watch_has_passed_it() {
        let (mut index, mut out) = (Index::default(), Vec::new());
        index.put_answer(object("a", "1", 5, None), &mut out);
        index.put(object("b", "2", 5, None), &mut out);
        assert_eq!(index.len(), 2);
        out.clear();
        index.bookmark(5, &mut out);
        assert_eq!((state(&index), out[0].change), (vec![("2".into(), 5)], Change::Deleted));
    }

    #[test]
    fn a_relist_that_finds_nothing_new_is_quiet_and_keeps_the_memory() {
        let (mut index, mut out) = (Index::default(), Vec::new());
        let list = || vec![object("a", "1", 5, Some("o")), object("b", "2", 6, None)];
        let began = index.list_began();
        index.replace(list(), 7, began, &mut out);
        let kept = Arc::clone(index.get(&list()[0].key()).unwrap());
        out.clear();
        let began = index.list_began();
        index.replace(list(), 9, began, &mut out);
        assert!(out.is_empty());
        assert!(Arc::ptr_eq(&kept, index.get(&list()[0].key()).unwrap()));
        assert_eq!((index.len(), index.owned_by("o").len()), (2, 1));
        assert_eq!(index.json_bytes(), list().iter().map(|o| o.json().len()).sum::<usize>());
    }

    #[test]
    fn another_object_of_the_same_name_is_told_as_gone_and_as_new() {
        let (mut index, mut out) = (Index::default(), Vec::new());
        let began = index.list_began();
        index.replace(vec![object("a", "1", 5, Some("o1"))], 5, began, &mut out);
        for (uid, version) in [("2", 7), ("3", 9)] {
            out.clear();
            if uid == "2" {
                index.put(object("a", uid, version, None), &mut out);
            } else {
                let began = index.list_began();
                index.replace(vec![object("a", uid, version, None)], version, began, &mut out);
            }
            let told: Vec<_> =
                out.iter().map(|delta| (delta.change, delta.uid.parse::<u32>().unwrap())).collect();
            let uid = uid.parse().unwrap();
            assert_eq!(told, [(Change::Deleted, uid - 1), (Change::Changed, uid)]);
        }
    }

    #[test]
    fn an_api_server_set_back_to_an_older_state_is_believed() {
        let (mut index, mut out) = (Index::default(), Vec::new());
        let began = index.list_began();
        index.replace(vec![object("a", "1", 5, None), object("b", "2", 6, None)], 9, began, &mut out);
        index.put(object("a", "1", 20, None), &mut out);
        index.put_answer(object("b", "2", 30, None), &mut out);
        index.gone_answer(&object("a", "1", 20, None).key(), "1", &mut out);
        out.clear();
        let began = index.list_began();
        index.replace(vec![object("a", "1", 5, None), object("c", "3", 7, None)], 8, began, &mut out);
        assert_eq!(state(&index), [("1".into(), 5), ("3".into(), 7)]);
        let mut told: Vec<_> = out.iter().map(|delta| (delta.uid.to_string(), delta.change)).collect();
        assert_eq!(told.remove(0), ("2".into(), Change::Deleted), "what was held is told as gone first");
        assert_eq!(told, [("1".into(), Change::Changed), ("3".into(), Change::Changed)]);
        // From here on its versions count.
        index.put_answer(object("c", "3", 9, None), &mut out);
        assert_eq!(state(&index), [("1".into(), 5), ("3".into(), 9)]);
    }

    /// One change of the API server's state: `uid` 0 deletes. Not selected: the watch does not show the object.
    #[derive(Debug, Clone)]
    struct Write {
        name: usize,
        delete: bool,
        selected: bool,
        answer: Option<usize>,
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// The API server carries out the next write; its answer, if we made it, arrives some steps later.
        Write,
        /// The watch delivers its next event.
        Event,
        /// A list is requested, or the one that was arrives.
        List,
        /// The oldest answer that is on its way arrives.
        Answer,
        Bookmark,
    }

    #[derive(Clone, Debug)]
    enum Answer {
        Put(Arc<Object>),
        Gone(Key, String),
    }

    /// The API server with one watch.
    #[derive(Default)]
    struct Server {
        /// Per name: UID, version, selected.
        objects: BTreeMap<usize, (String, u64, bool)>,
        /// Events of the watch by version: object, gone.
        events: Vec<(u64, Arc<Object>, bool)>,
        version: u64,
    }

    impl Server {
        fn apply(&mut self, write: &Write) -> Option<Answer> {
            self.version += 1;
            let name = format!("o{}", write.name);
            let before = self.objects.get(&write.name).cloned();
            if write.delete {
                let (uid, _, selected) = self.objects.remove(&write.name)?;
                let dead = object(&name, &uid, self.version, None);
                if selected {
                    self.events.push((self.version, Arc::clone(&dead), true));
                }
                return Some(Answer::Gone(dead.key(), uid));
            }
            let uid = before.as_ref().map_or_else(|| format!("u{}", self.version), |(uid, ..)| uid.clone());
            let now = object(&name, &uid, self.version, None);
            if write.selected || before.is_some_and(|(_, _, selected)| selected) {
                self.events.push((self.version, Arc::clone(&now), !write.selected));
            }
            self.objects.insert(write.name, (uid, self.version, write.selected));
            Some(Answer::Put(now))
        }

        fn list(&self) -> Vec<Arc<Object>> {
            let selected = self.objects.iter().filter(|(_, (_, _, selected))| *selected);
            selected
                .map(|(name, (uid, version, _))| object(&format!("o{name}"), uid, *version, None))
                .collect()
        }
    }

    fn write() -> impl Strategy<Value = Write> {
        (
            0..4_usize,
            prop::bool::weighted(0.3),
            prop::bool::weighted(0.8),
            prop::option::weighted(0.6, 0..3_usize),
        )
            .prop_map(|(name, delete, selected, answer)| Write { name, delete, selected, answer })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Write), 4 => Just(Step::Event), 4 => Just(Step::Answer), 1 => Just(Step::List), 1 => Just(Step::Bookmark)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the order in which lists, events and answers arrive: nothing goes back in time on the way, and
        /// the end is the state of the API server.
        #[test]
        fn the_order_of_arrival_does_not_change_the_end(
            writes in prop::collection::vec(write(), 1..40),
            steps in prop::collection::vec(step(), 0..160),
        ) {
            let (mut index, mut out) = (Index::default(), Vec::new());
            let mut server = Server::default();
            let mut writes = writes.into_iter();
            let mut answers: Vec<Answer> = Vec::new();
            let mut listing: Option<(ListToken, Vec<Arc<Object>>, u64)> = None;
            let mut delivered = None::<u64>; // none: no list yet, so no watch
            let mut buried: Vec<String> = Vec::new();
            let mut known: BTreeMap<String, u64> = BTreeMap::new();
            // In the end everything arrives: all writes, all answers, one list if there was none, all events.
            let rest = std::iter::repeat_n(Step::Write, 40).chain(std::iter::repeat_n(Step::Answer, 40));
            let ending = rest.chain([Step::List, Step::List]).chain(std::iter::repeat_n(Step::Event, 80));
            let scripted = steps.len();
            for (at, step) in steps.into_iter().chain(ending).chain([Step::Bookmark]).enumerate() {
                match step {
                    Step::Write => if let Some(write) = writes.next() {
                        let answer = server.apply(&write);
                        if let (Some(place), Some(answer)) = (write.answer, answer) {
                            answers.insert(place.min(answers.len()), answer);
                        }
                    },
                    Step::Answer => match answers.pop() {
                        Some(Answer::Put(object)) => index.put_answer(object, &mut out),
                        Some(Answer::Gone(key, uid)) => {
                            let held = index.get(&key).is_some_and(|held| *held.meta().uid == *uid);
                            index.gone_answer(&key, &uid, &mut out);
                            if held { buried.push(uid); }
                        }
                        None => {}
                    },
                    Step::List => match listing.take() {
                        None if at < scripted || delivered.is_none() => {
                            listing = Some((index.list_began(), server.list(), server.version));
                        }
                        // A relist never shows less than the watch did: both are consistent.
                            Some((began, items, version)) if delivered.is_none_or(|done| done <= version) => {
                                index.replace(items, version, began, &mut out);
                                delivered = Some(version);
                            }
                        _ => {}
                    },
                    Step::Event => if let Some(done) = delivered && let Some((version, object, gone)) =
                        server.events.iter().find(|(version, ..)| *version > done)
                    {
                        if *gone { index.gone(object, &mut out) } else { index.put(Arc::clone(object), &mut out) }
                        delivered = Some(*version);
                    },
                    Step::Bookmark => if let Some(done) = delivered
                        && !server.events.iter().any(|(version, ..)| *version > done)
                    {
                        index.bookmark(server.version, &mut out);
                        delivered = Some(server.version);
                    },
                }
                for object in index.objects() {
                    let meta = object.meta();
                    prop_assert!(!buried.contains(&meta.uid.to_string()), "{} came back", meta.uid);
                    let before = known.insert(meta.uid.to_string(), meta.resource_version);
                    prop_assert!(before.is_none_or(|before| before <= meta.resource_version), "went back in time");
                }
            }
            let mut expected: Vec<_> = server.list().iter()
                .map(|o| (o.meta().uid.to_string(), o.meta().resource_version)).collect();
            expected.sort();
            prop_assert_eq!(state(&index), expected);
            prop_assert!(index.ahead.is_empty());
            // What was told adds up to the state as well.
            let mut told = BTreeMap::new();
            for delta in &out {
                match delta.change {
                    Change::Deleted => { told.remove(&delta.key); }
                    // A change of somebody else may be told after the write of ours that followed it.
                    _ if told.get(&delta.key).is_some_and(|(_, told)| *told > delta.resource_version) => {}
                    _ => { told.insert(delta.key.clone(), (delta.uid.to_string(), delta.resource_version)); }
                }
            }
            let mut told: Vec<_> = told.into_values().collect();
            told.sort();
            prop_assert_eq!(told, state(&index));
        }
    }
}
