//! Requests about Leases, on a connection of their own: a renewal must not wait behind a large write.

use std::time::Duration;

use http::{Method, Request};
use pilothouse_model::manifest::{Resource, Scope};

use super::record::Lease;
use crate::error::ReadError;
use crate::path;
use crate::write::seconds;

/// Leases of one namespace. No request is repeated here.
#[derive(Clone)]
pub(crate) struct LeaseClient {
    client: kube::Client,
    namespace: String,
    request_time: Duration,
}

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// It is stored, as it now is.
    Stored(Lease),
    /// Somebody else was faster: another version is there, or one at all.
    Overtaken,
    /// It is not there any more.
    Gone,
}

impl LeaseClient {
    pub(crate) fn new(client: kube::Client, namespace: &str, request_time: Duration) -> Self {
        Self { client, namespace: namespace.to_owned(), request_time }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The Lease as it is now: without a version asked for, the API server reads from where it writes. None: it is not
    /// there.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Lease>, ReadError> {
        match self.send(Method::GET, Some(name), Vec::new()).await {
            Ok(text) => Lease::parse(&text).map(Some),
            Err(ReadError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a Lease, in the version that it was read in or as a new one. Dropping the future gives up the answer; the
    /// request may have been sent.
    pub(crate) async fn write(&self, name: &str, lease: &Lease) -> Result<Written, ReadError> {
        let sent = if lease.is_stored() {
            self.send(Method::PUT, Some(name), lease.to_body()).await
        } else {
            self.send(Method::POST, None, lease.to_body()).await
        };
        match sent {
            Ok(text) => Lease::parse(&text).map(Written::Stored),
            Err(ReadError::Refused { code: 409, .. }) => Ok(Written::Overtaken),
            // Of a new one it is the namespace that is not there.
            Err(ReadError::Missing(_)) if lease.is_stored() => Ok(Written::Gone),
            Err(error) => Err(error),
        }
    }

    async fn send(&self, method: Method, name: Option<&str>, body: Vec<u8>) -> Result<String, ReadError> {
        let (resource, namespace) = (resource(), Some(&*self.namespace));
        let path = match name {
            Some(name) => path::of_object(&resource, namespace, name),
            None => path::of_collection(&resource, namespace),
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?timeout={}", seconds(self.request_time)))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| ReadError::Malformed(error.to_string()))?;
        match tokio::time::timeout(self.request_time, self.client.request_text(request)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(ReadError::Unreachable(format!("nothing came within {:?}", self.request_time))),
        }
    }
}

pub(crate) fn resource() -> Resource {
    Resource {
        group: "coordination.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "Lease".to_owned(),
        plural: "leases".to_owned(),
        scope: Scope::Namespaced,
    }
}
