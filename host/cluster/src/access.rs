//! Single objects and short lists, read from the API server when a plugin asks for them (`look-up`). What is needed
//! at every pass is watched instead.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::header::{ACCEPT, HeaderValue};
use pilothouse_model::manifest::{Projection, Resource};
use pilothouse_model::names::Key;
use pilothouse_model::object::Object;

use crate::answer;
use crate::connect::Cluster;
use crate::error::ReadError;
use crate::pages::{Pages, Sizes};
use crate::path;
use crate::watches::Query;

/// One object of at most a few MiB, or one page.
const TIMEOUT: Duration = Duration::from_secs(10);
/// One object: etcd takes 1.5 MiB by default and up to 8 MiB where somebody raised that.
const OBJECT_BYTES_MAX: usize = 16 << 20;
/// Pages of a list that a plugin asked for. What is in memory at a time is one page and what was kept of those before.
const PAGES: Sizes = Sizes { objects: 100, bytes_max: 16 << 20, timeout: TIMEOUT };

/// A list that ends where the limit is reached.
#[derive(Debug)]
pub struct Listed {
    /// The objects, in the API server's order: by namespace and name.
    pub objects: Vec<Object>,
    /// There are no more.
    pub complete: bool,
}

impl Cluster {
    /// One object, as much of it as `projection` says; none if it is not there. A kind that is not there is
    /// [`ReadError::Missing`] for nobody: it has no objects.
    pub async fn get(
        &self,
        resource: &Resource,
        key: &Key,
        projection: &Projection,
    ) -> Result<Option<Object>, ReadError> {
        let path = path::of_object(resource, key.namespace.as_deref(), &key.name);
        let mut request =
            Request::get(path).body(Vec::new()).map_err(|error| ReadError::Malformed(error.to_string()))?;
        if *projection == Projection::Metadata {
            let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(metadata));
        }
        let text = match answer::text(self.reader(), request, TIMEOUT, OBJECT_BYTES_MAX).await {
            Ok(text) => text,
            Err(ReadError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut object: Object =
            serde_json::from_str(&text).map_err(|error| ReadError::Malformed(error.to_string()))?;
        object.stamp(&Arc::new(resource.kind()));
        object.project(projection);
        Ok(Some(object))
    }

    /// At most `objects_max` objects of a query. Fails with [`ReadError::TooLarge`] where what is kept of them comes
    /// to more than `bytes_max`; no more than that and one page is ever held.
    pub async fn list(&self, query: &Query, objects_max: usize, bytes_max: u64) -> Result<Listed, ReadError> {
        let kind = Arc::new(query.resource().kind());
        let (mut objects, mut bytes) = (Vec::new(), 0);
        let mut pages = Pages::new(query, PAGES);
        while let Some(page) = pages.next(self.reader()).await? {
            for mut object in page.items {
                if objects.len() == objects_max {
                    return Ok(Listed { objects, complete: false });
                }
                object.stamp(&kind);
                object.project(query.projection());
                bytes += object.json().len() as u64;
                if bytes > bytes_max {
                    return Err(ReadError::TooLarge { bytes_max });
                }
                objects.push(object);
            }
        }
        Ok(Listed { objects, complete: true })
    }
}
