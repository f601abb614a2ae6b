//! What one pass knows of the cluster: the primary, its children and the answers to its questions, taken at one
//! instant; and the request that a guest gets of it.

use std::sync::Arc;

use jiff::Timestamp;
use pilothouse_model::action::{Answer, Rejected, Request};
use pilothouse_model::object::Object;

/// A consistent view for one pass. Objects are shared with the store, not copied.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// The object being reconciled.
    pub primary: Arc<Object>,
    /// Its children, in the order of the manifest, then by namespace and name.
    pub children: Vec<Arc<Object>>,
    /// Answers to the manifest's rules and to look-ups, in this order.
    pub related: Vec<Found>,
}

/// The objects found for one question.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Name of the rule, or id of the look-up.
    pub query: String,
    /// All of them are here.
    pub complete: bool,
    /// By namespace and name.
    pub objects: Vec<Arc<Object>>,
}

impl Snapshot {
    /// What the guest gets: every object as it may see it.
    pub(crate) fn request(
        &self,
        deleting: bool,
        config: &str,
        now: &str,
        seed: u64,
        last: &[Rejected],
    ) -> Request {
        Request {
            primary: guest(&self.primary),
            deleting,
            config: config.to_owned(),
            now: now.to_owned(),
            seed,
            children: self.children.iter().map(guest).collect(),
            related: self
                .related
                .iter()
                .map(|found| Answer {
                    query: found.query.clone(),
                    complete: found.complete,
                    objects: found.objects.iter().map(guest).collect(),
                })
                .collect(),
            last: last.to_vec(),
        }
    }

    /// Takes the answer to a look-up, in place of an earlier one to the same question: a plugin that needs one answer to
    /// ask the next question must still have both in the end.
    pub(crate) fn answer(&mut self, found: Found) {
        match self.related.iter_mut().find(|known| known.query == found.query) {
            Some(known) => *known = found,
            None => self.related.push(found),
        }
    }

    /// Bytes of all related objects.
    pub(crate) fn related_bytes(&self) -> u64 {
        let objects = self.related.iter().flat_map(|found| &found.objects);
        objects.map(|object| object.json().len() as u64).sum()
    }

    /// All related objects, whatever they were found by.
    pub(crate) fn related_objects(&self) -> Vec<Arc<Object>> {
        self.related.iter().flat_map(|found| found.objects.iter().cloned()).collect()
    }
}

/// RFC 3339 with whole seconds, the precision of Kubernetes' `metav1.Time`.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn guest(object: &Arc<Object>) -> String {
    object.guest_json().into_owned()
}
