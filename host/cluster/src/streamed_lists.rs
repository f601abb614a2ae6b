//! Which API servers do not stream lists, so that each is asked once and not by every watch.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pilothouse_model::manifest::Resource;

/// An API server may be upgraded while the host runs.
const ASKED_AGAIN_AFTER: Duration = Duration::from_hours(1);

/// Group versions that refused to stream a list. An aggregated API server need not be able to do what the main one is.
#[derive(Debug, Default)]
pub(crate) struct StreamedLists(Mutex<HashMap<(String, String), Instant>>);

impl StreamedLists {
    /// Nothing is known against it.
    pub(crate) fn are_offered(&self, resource: &Resource) -> bool {
        let refused = self.refusals().get(&group_version(resource)).copied();
        refused.is_none_or(|refused| refused.elapsed() >= ASKED_AGAIN_AFTER)
    }

    /// Remembers a refusal.
    pub(crate) fn refused(&self, resource: &Resource) {
        self.refusals().insert(group_version(resource), Instant::now());
    }

    fn refusals(&self) -> MutexGuard<'_, HashMap<(String, String), Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn group_version(resource: &Resource) -> (String, String) {
    (resource.group.clone(), resource.version.clone())
}
