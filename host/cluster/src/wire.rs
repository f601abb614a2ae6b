//! What the API server sends for a list and for a watch, read without a tree of values.

use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use http::Request;
use kube::core::Status;
use kube::core::params::{ListParams, WatchParams};
use kube::core::request::Request as Path;
use pilothouse_model::manifest::Projection;
use pilothouse_model::object::Object;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::ReadError;
use crate::path;
use crate::watches::Query;

/// One watch event. etcd takes 1.5 MiB per object by default and up to 8 MiB where somebody raised that.
const LINE_BYTES_MAX: u64 = 32 << 20;
/// On the object of the bookmark that ends a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

impl Query {
    fn path(&self) -> Path {
        Path::new(path::of_collection(&self.resource, self.namespace.as_deref()))
    }

    /// One page of a consistent list.
    pub(crate) fn list_request(
        &self,
        next: Option<&str>,
        objects: u32,
    ) -> Result<Request<Vec<u8>>, ReadError> {
        let params = ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit: Some(objects),
            continue_token: next.map(str::to_owned),
            ..ListParams::default()
        };
        let request = match self.projection {
            Projection::Full | Projection::Fields(_) => self.path().list(&params),
            Projection::Metadata => self.path().list_metadata(&params),
        };
        request.map_err(|error| ReadError::Malformed(error.to_string()))
    }

    /// A list that is as short as can be, for the version that it bears. Of all objects: a selector that matches none
    /// would make the API server look at each.
    pub(crate) fn version_request(&self) -> Result<Request<Vec<u8>>, ReadError> {
        let params = ListParams { limit: Some(1), ..ListParams::default() };
        self.path().list_metadata(&params).map_err(|error| ReadError::Malformed(error.to_string()))
    }

    /// A watch from `version` on; without one, a streamed list that goes on as a watch.
    pub(crate) fn watch_request(
        &self,
        version: Option<&str>,
        lasting: Duration,
    ) -> Result<Request<Vec<u8>>, ReadError> {
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(u32::try_from(lasting.as_secs()).unwrap_or(u32::MAX)),
            bookmarks: true,
            send_initial_events: version.is_none(),
        };
        // An empty version asks for a consistent list. kube's own watcher sends "0", any state that is at hand, which
        // may be older than what was shown before.
        let version = version.unwrap_or_default();
        let request = match self.projection {
            Projection::Full | Projection::Fields(_) => self.path().watch(&params, version),
            Projection::Metadata => self.path().watch_metadata(&params, version),
        };
        request.map_err(|error| ReadError::Malformed(error.to_string()))
    }
}

/// One page of a list.
pub(crate) struct Page {
    pub(crate) version: String,
    /// Continue token of the next page.
    pub(crate) next: Option<String>,
    pub(crate) items: Vec<Object>,
    /// Items that could not be read.
    pub(crate) malformed: u64,
}

impl Page {
    pub(crate) fn parse(text: &str) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct List<'a> {
            metadata: Metadata,
            #[serde(borrow)]
            items: Option<Vec<&'a RawValue>>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            #[serde(default)]
            resource_version: String,
            #[serde(default)]
            r#continue: String,
        }
        let list: List<'_> = serde_json::from_str(text).map_err(|error| malformed(&error))?;
        let raw = list.items.unwrap_or_default();
        // One by one: an item that cannot be read must not hide the others.
        let items: Vec<Object> =
            raw.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).collect();
        Ok(Self {
            version: list.metadata.resource_version,
            next: Some(list.metadata.r#continue).filter(|token| !token.is_empty()),
            malformed: (raw.len() - items.len()) as u64,
            items,
        })
    }
}

/// One event of a watch.
#[derive(Debug)]
pub(crate) enum Event {
    /// Added or modified.
    Put(Object),
    /// Deleted, or no longer selected.
    Gone(Object),
    /// Everything up to this version has been sent.
    Bookmark {
        version: String,
        /// The streamed list ends here.
        list_ends: bool,
    },
    /// An object that cannot be read, or an event of an unknown type.
    Malformed(String),
}

impl Event {
    /// The next event; none at the end of the stream. `buffer` is used again for each line.
    ///
    /// A dropped future loses what it had read of a line: drop the stream with it.
    pub(crate) async fn next(
        stream: &mut (impl AsyncBufRead + Unpin),
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Self>, ReadError> {
        buffer.clear();
        let read = stream.take(LINE_BYTES_MAX).read_until(b'\n', buffer).await;
        let bytes = read.map_err(|error| ReadError::Unreachable(crate::error::causes(&error)))?;
        if bytes == 0 {
            return Ok(None);
        }
        if buffer.last() != Some(&b'\n') {
            let too_long = buffer.len() as u64 >= LINE_BYTES_MAX;
            let problem = if too_long { "an event is too long" } else { "an event breaks off" };
            return Err(ReadError::Unreachable(problem.to_owned()));
        }
        Self::parse(buffer).map(Some)
    }

    fn parse(line: &[u8]) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Line<'a> {
            r#type: &'a str,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let line = match serde_json::from_slice::<Line<'_>>(line) {
            Ok(line) => line,
            // What stands between may answer with a bare Status.
            Err(error) => {
                return Err(serde_json::from_slice(line)
                    .map_or_else(|_| malformed(&error), |status| ReadError::from_status(&status)));
            }
        };
        let object = || serde_json::from_str::<Object>(line.object.get());
        Ok(match line.r#type {
            "ADDED" | "MODIFIED" => {
                object().map_or_else(|error| Self::Malformed(error.to_string()), Self::Put)
            }
            "DELETED" => object().map_or_else(|error| Self::Malformed(error.to_string()), Self::Gone),
            "BOOKMARK" => bookmark(line.object.get())?,
            "ERROR" => {
                let status: Status =
                    serde_json::from_str(line.object.get()).map_err(|error| malformed(&error))?;
                return Err(ReadError::from_status(&status));
            }
            other => Self::Malformed(format!("an event of the unknown type {other:.32}")),
        })
    }
}

fn bookmark(object: &str) -> Result<Event, ReadError> {
    #[derive(Deserialize)]
    struct Bookmark<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        resource_version: String,
        #[serde(default, borrow)]
        annotations: Option<std::collections::BTreeMap<std::borrow::Cow<'a, str>, &'a RawValue>>,
    }
    let Bookmark { metadata } = serde_json::from_str(object).map_err(|error| malformed(&error))?;
    let list_ends =
        metadata.annotations.is_some_and(|annotations| annotations.contains_key(INITIAL_EVENTS_END));
    Ok(Event::Bookmark { version: metadata.resource_version, list_ends })
}

/// Without the text itself: it may be a Secret's.
fn malformed(error: &serde_json::Error) -> ReadError {
    ReadError::Malformed(format!("line {} column {}: {:?}", error.line(), error.column(), error.classify()))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::io::Cursor;

    use super::*;

    fn events(text: &str) -> Vec<Result<Event, ReadError>> {
        let (mut stream, mut buffer, mut events) = (Cursor::new(text.as_bytes()), Vec::new(), Vec::new());
        loop {
            match Event::next(&mut stream, &mut buffer).now_or_never().unwrap() {
                Ok(Some(event)) => events.push(Ok(event)),
                Ok(None) => return events,
                Err(error) => {
                    events.push(Err(error));
                    return events;
                }
            }
        }
    }

    #[test]
    fn the_events_of_a_watch_are_read_one_by_one() {
        let text = concat!(
            r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"3"}}}"#,
            "\n",
            r#"{"object":{"metadata":{"name":"a"}},"type":"DELETED"}"#,
            "\n",
            r#"{"type":"ADDED","object":[1]}"#,
            "\n",
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#,
            "\n",
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
            "\n",
            r#"{"type":"SURPRISE","object":{}}"#,
            "\n",
            r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#,
            "\n",
        );
        let events = events(text);
        assert!(matches!(&events[0], Ok(Event::Put(object)) if object.meta().resource_version == 3));
        assert!(matches!(&events[1], Ok(Event::Gone(object)) if &*object.meta().name == "a"));
        assert!(matches!(&events[2], Ok(Event::Malformed(_))));
        assert!(matches!(&events[3], Ok(Event::Bookmark { version, list_ends: false }) if version == "9"));
        assert!(matches!(&events[4], Ok(Event::Bookmark { list_ends: true, .. })));
        assert!(matches!(&events[5], Ok(Event::Malformed(_))));
        assert_eq!(events[6].as_ref().unwrap_err(), &ReadError::Expired("too old".to_owned()));
    }

    #[test]
    fn what_breaks_off_or_is_no_event_ends_the_stream() {
        assert!(matches!(&events(r#"{"type":"ADDED","obj"#)[0], Err(ReadError::Unreachable(_))));
        assert!(matches!(&events("<html>\n")[0], Err(ReadError::Malformed(text)) if !text.contains("html")));
        let status = "{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":403,\"message\":\"no\"}\n";
        assert!(matches!(&events(status)[0], Err(ReadError::Forbidden(_))));
    }

    #[test]
    fn one_unreadable_item_does_not_hide_the_others() {
        let page = Page::parse(
            r#"{"metadata":{"resourceVersion":"7","continue":"t"},"items":[{"metadata":{"name":"a"}},17,{"metadata":{"name":"b"},"spec":"?"}]}"#,
        )
        .unwrap();
        assert_eq!((page.items.len(), page.malformed), (2, 1));
        assert_eq!((page.version.as_str(), page.next.as_deref()), ("7", Some("t")));
        assert_eq!(Page::parse(r#"{"metadata":{},"items":null}"#).unwrap().items.len(), 0);
    }

    #[test]
    fn requests_ask_for_consistent_lists_and_for_no_more_than_is_kept() {
        let resource = serde_json::from_str(r#"{"version":"v1","kind":"Pod","plural":"pods"}"#).unwrap();
        let mut query = Query::new(resource).in_namespace("n").labelled("a=b,c");
        let uri = |request: Request<Vec<u8>>| request.uri().to_string();
        let lasting = Duration::from_secs(250);
        assert_eq!(
            uri(query.watch_request(None, lasting).unwrap()),
            "/api/v1/namespaces/n/pods?&watch=true&timeoutSeconds=250&labelSelector=a%3Db%2Cc&allowWatchBookmarks=true\
             &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion="
        );
        assert!(
            uri(query.watch_request(Some("7"), lasting).unwrap())
                .ends_with("Bookmarks=true&resourceVersion=7")
        );
        assert_eq!(
            uri(query.list_request(None, 500).unwrap()),
            "/api/v1/namespaces/n/pods?&labelSelector=a%3Db%2Cc&limit=500"
        );
        query = query.metadata_only();
        let accept = query.watch_request(None, lasting).unwrap().headers()[http::header::ACCEPT].clone();
        assert_eq!(accept, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    }
}
