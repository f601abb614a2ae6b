//! Writes a primary's status: the plugin's part and the host's condition in one merge patch that holds the object's
//! version and only what changed. (Server-side apply of a status costs the API server 40 % more and fails with 500 on
//! a field that the schema does not know.)

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use pilothouse_model::condition::{self, Reconciled};
use pilothouse_model::diff::Print;
use pilothouse_model::manifest::Resource;
use pilothouse_model::object::Object;
use serde_json::{Map, Value, json};

use crate::write::{Endpoint, Fence, Writer};
use crate::write_error::{Fault, WriteError};

/// What a pass wants the status to be.
#[derive(Debug, Clone, Copy)]
pub struct Status<'a> {
    /// The plugin's part; none: as it is.
    pub wanted: Option<&'a Map<String, Value>>,
    /// The host's own condition; none: as it is.
    pub host: Option<&'a Reconciled>,
    /// `metadata.generation` of the primary that the pass saw. A newer one that a second look finds was not
    /// observed by it.
    pub generation: i64,
    /// RFC 3339.
    pub now: &'a str,
}

impl Status<'_> {
    fn patch(&self, live: &Object, now: &str) -> Option<Value> {
        condition::patch(&live.field("status"), self.wanted, self.host, self.generation, now)
    }
}

type LeftOver = HashMap<Arc<str>, (Print, u64)>;

/// Writes the statuses of one plugin's primaries.
#[derive(Debug)]
pub struct StatusWriter {
    writer: Writer,
    /// By UID of the primary: the patch (without its times) that was left over after a write, and the version that
    /// it was left over of. The API server drops what the schema does not declare; that part would be sent for ever.
    left_over: Arc<Mutex<LeftOver>>,
}

impl StatusWriter {
    /// A status writer under the plugin's field manager, which `writer` must have.
    pub fn new(writer: Writer) -> Self {
        Self { writer, left_over: Arc::default() }
    }

    /// The same behind another fence, with the same memory.
    #[must_use]
    pub fn with_fence(&self, fence: Arc<dyn Fence>) -> Self {
        Self { writer: self.writer.with_fence(fence), left_over: Arc::clone(&self.left_over) }
    }

    /// Brings the status of `primary` to what is wanted. None if it is so already.
    ///
    /// If the primary was changed since it was read, it is read and patched once more; a second change in between
    /// is [`Fault::Stale`]: the pass must be repeated. A kind without a status subresource is [`Fault::Invalid`].
    /// When the future is dropped, the status may or may not have been written; the next pass finds out.
    pub async fn write(
        &self,
        resource: &Resource,
        primary: &Object,
        status: &Status<'_>,
    ) -> Result<Option<Object>, WriteError> {
        match self.write_once(resource, primary, status).await {
            Err(error) if error.fault == Fault::Stale => {
                let at = Endpoint::of_object(resource, primary);
                let fresh =
                    self.writer.get(&at).await?.filter(|fresh| fresh.meta().uid == primary.meta().uid);
                let Some(fresh) = fresh else {
                    return Err(WriteError::here(Fault::NotFound, format!("{at} is not there any more")));
                };
                self.write_once(resource, &fresh, status).await
            }
            done => done,
        }
    }

    async fn write_once(
        &self,
        resource: &Resource,
        primary: &Object,
        status: &Status<'_>,
    ) -> Result<Option<Object>, WriteError> {
        let Some(patch) = status.patch(primary, status.now) else { return Ok(None) };
        let meta = primary.meta();
        let timeless = |object| status.patch(object, "").map(|patch| Print::of(&patch));
        let left_over = self.remembered().get(&meta.uid).copied();
        if left_over.is_some_and(|(print, version)| {
            version == meta.resource_version && timeless(primary) == Some(print)
        }) {
            return Ok(None);
        }
        let at = Endpoint::of_object(resource, primary);
        let body = json!({
            "metadata": {"uid": &*meta.uid, "resourceVersion": meta.resource_version.to_string()},
            "status": patch
        });
        let response = match self.writer.merge_patch(&at, Some("status"), &body).await {
            Ok(response) => response,
            // Of a custom resource the API server says the same whether the object or the subresource is not there.
            Err(error) if error.fault == Fault::NotFound && self.writer.get(&at).await?.is_some() => {
                return Err(no_subresource(&at, resource));
            }
            Err(error) if error.fault == Fault::NoEndpoint => return Err(no_subresource(&at, resource)),
            Err(error) => return Err(error),
        };
        if let Some(print) = timeless(&response) {
            tracing::warn!(object = %at, "the API server did not keep all of the status: the CRD's schema must declare it");
            self.remembered().insert(meta.uid.clone(), (print, response.meta().resource_version));
        } else {
            self.remembered().remove(&meta.uid);
        }
        Ok(Some(response))
    }

    /// Drops what is remembered of a primary that is gone.
    pub fn forget(&self, uid: &str) {
        self.remembered().remove(uid);
    }

    /// Drops what is remembered of all but these, for an answer may come after the event that its primary is gone.
    pub fn retain(&self, alive: &HashSet<Arc<str>>) {
        self.remembered().retain(|uid, _| alive.contains(uid));
    }

    /// Primaries that something is remembered of.
    pub fn remembered_primaries(&self) -> usize {
        self.remembered().len()
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, LeftOver> {
        self.left_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_subresource(at: &Endpoint<'_>, resource: &Resource) -> WriteError {
    let message = format!(
        "{} has no status subresource: add `subresources: {{status: {{}}}}` to version {} of its CRD",
        at.plural_and_group(),
        resource.version
    );
    WriteError { code: 404, ..WriteError::here(Fault::Invalid, message) }
}
