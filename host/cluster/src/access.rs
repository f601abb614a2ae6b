//! Single objects and short lists, read from the API server when a plugin asks for them (`look-up`). What is needed
//! at every pass is watched instead.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use pilothouse_model::manifest::Resource;
use pilothouse_model::names::Key;
use pilothouse_model::object::Object;

use crate::connect::{Cluster, read_text};
use crate::error::ReadError;
use crate::path;
use crate::watches::Query;
use crate::wire::Page;

/// One object of at most a few MiB, or one page.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A list that ends where the limit is reached.
#[derive(Debug)]
pub struct Listed {
    /// The objects, in the API server's order: by namespace and name.
    pub objects: Vec<Object>,
    /// There are no more.
    pub complete: bool,
}

impl Cluster {
    /// One object; none if it is not there. A kind that is not there is [`ReadError::Missing`] for nobody: it has no
    /// objects.
    pub async fn get(&self, resource: &Resource, key: &Key) -> Result<Option<Object>, ReadError> {
        let path = path::of_object(resource, key.namespace.as_deref(), &key.name);
        let text = match self.get_text(&path, TIMEOUT).await {
            Ok(text) => text,
            Err(ReadError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut object: Object =
            serde_json::from_str(&text).map_err(|error| ReadError::Malformed(error.to_string()))?;
        object.stamp(&Arc::new(resource.kind()));
        Ok(Some(object))
    }

    /// At most `objects_max` objects of a query.
    pub async fn list(&self, query: &Query, objects_max: usize) -> Result<Listed, ReadError> {
        let (mut objects, mut next) = (Vec::new(), None);
        loop {
            let request: Request<Vec<u8>> = query.list_request(next)?;
            let page = Page::parse(&read_text(self.reader(), request, TIMEOUT).await?)?;
            objects.extend(page.items);
            next = page.next;
            if objects.len() >= objects_max || next.is_none() {
                let complete = next.is_none() && objects.len() <= objects_max;
                objects.truncate(objects_max);
                let kind = Arc::new(query.resource().kind());
                for object in &mut objects {
                    object.stamp(&kind);
                    object.project(query.projection());
                }
                return Ok(Listed { objects, complete });
            }
        }
    }
}
