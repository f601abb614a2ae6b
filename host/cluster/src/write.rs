//! Sends one request that writes, and reads its answer. Decides nothing, and above all does not try again: a write
//! that failed is the next pass's to make, from newer state and after the fence was asked once more. The client that
//! is given to it must not retry either (kube's default does, for minutes).

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Limited};
use pilothouse_model::action::RejectReason;
use pilothouse_model::kind::{Kind, Reference};
use pilothouse_model::manifest::{Resource, Scope};
use pilothouse_model::object::Object;
use pilothouse_model::plan::{Propagation, Write};
use serde_json::{Value, json};
use tracing::Instrument as _;

use crate::error::causes;
use crate::path;
use crate::rehearsal::Rehearsal;
use crate::write_error::{Fault, WriteError, pause};

/// Longest that a request may take, here and (as `timeout=5s`) in the API server. An ordinary one takes 5 ms; a
/// server that needs more is in trouble, and a Lease of 15 s must outlive it.
pub const WRITE_TIME_MAX: Duration = Duration::from_secs(5);
/// Largest body sent: kube-apiserver reads 3 MiB and refuses the rest.
pub const REQUEST_BYTES_MAX: usize = 3 << 20;
/// Largest answer read: etcd holds 1.5 MiB of an object, JSON with its escapes and managedFields takes some times
/// that.
pub const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// Asked before each write is sent: does this host still hold the right to write? A [`Term`](crate::lease::Term) of a
/// Lease answers from its last renewal. Dry runs and reads are not asked for.
pub trait Fence: Send + Sync + 'static {
    /// Whether a write that may take [`Fence::write_time`] may begin now.
    fn admits(&self) -> bool;

    /// Longest that a write may take, here and in the API server.
    fn write_time(&self) -> Duration {
        WRITE_TIME_MAX
    }

    /// A write that was admitted has ended without an answer that says what became of it: it may still happen.
    fn unanswered(&self) {}
}

/// The fence of somebody who is alone.
#[derive(Debug, Clone, Copy)]
pub struct AlwaysOpen;

impl Fence for AlwaysOpen {
    fn admits(&self) -> bool {
        true
    }
}

/// The fence of a writer that nobody has put under a term yet.
#[derive(Debug, Clone, Copy)]
pub struct AlwaysShut;

impl Fence for AlwaysShut {
    fn admits(&self) -> bool {
        false
    }
}

/// A write on its way. Unless it is marked as answered, its end is that of one without an answer: a future may be
/// dropped at any time.
struct OnItsWay<'a>(Option<&'a dyn Fence>);

impl OnItsWay<'_> {
    /// The API server has said what became of it: done, or refused before anything was done. With a 5xx it may be doing
    /// it still.
    fn answered(&mut self, outcome: &Result<Vec<u8>, WriteError>) {
        let final_answer = outcome.as_ref().map_or_else(|error| (400..500).contains(&error.code), |_| true);
        if final_answer {
            self.0 = None;
        }
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        if let Some(fence) = self.0 {
            fence.unanswered();
        }
    }
}

/// Kinds of requests, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Read of one object before or after a write.
    Get,
    /// POST.
    Create,
    /// Server-side apply.
    Apply,
    /// JSON merge patch.
    MergePatch,
    /// JSON patch.
    JsonPatch,
    /// DELETE.
    Delete,
    /// Anything with `dryRun=All`: nothing is stored.
    DryRun,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Get, Self::Create, Self::Apply, Self::MergePatch, Self::JsonPatch, Self::Delete, Self::DryRun];

    /// Label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Apply => "apply",
            Self::MergePatch => "merge-patch",
            Self::JsonPatch => "json-patch",
            Self::Delete => "delete",
            Self::DryRun => "dry-run",
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Create => Method::POST,
            Self::Delete => Method::DELETE,
            _ => Method::PATCH,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Apply => "application/apply-patch+yaml",
            Self::MergePatch => "application/merge-patch+json",
            Self::JsonPatch => "application/json-patch+json",
            _ => "application/json",
        }
    }
}

/// What was sent and what became of it, counted since the start. Shared by all clones of a [`Writer`].
#[derive(Debug, Default)]
pub struct WriteCounters {
    sent: [AtomicU64; Verb::ALL.len()],
    failed: [AtomicU64; RejectReason::ALL.len()],
}

impl WriteCounters {
    /// Requests sent.
    pub fn sent(&self, verb: Verb) -> u64 {
        self.sent[verb as usize].load(Ordering::Relaxed)
    }

    /// Requests that failed, by reason; those that the fence held back count as `Unavailable`.
    pub fn failed(&self, reason: RejectReason) -> u64 {
        self.failed[reason as usize].load(Ordering::Relaxed)
    }

    /// Requests sent that may change something.
    pub fn writes(&self) -> u64 {
        let verbs = Verb::ALL.into_iter().filter(|verb| !matches!(verb, Verb::Get | Verb::DryRun));
        verbs.map(|verb| self.sent(verb)).sum()
    }
}

/// One object of the API server.
#[derive(Debug, Clone)]
pub struct Endpoint<'a> {
    resource: Resource,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> Endpoint<'a> {
    /// The object that a plan's write is for.
    pub fn of_write(write: &'a Write) -> Self {
        let target = &write.target;
        Self::new(&target.kind, &write.plural, target.namespace.as_deref(), &target.name)
    }

    /// This very object.
    pub fn of_object(resource: &Resource, object: &'a Object) -> Self {
        let meta = object.meta();
        Self { resource: resource.clone(), namespace: meta.namespace.as_deref(), name: &meta.name }
    }

    /// The object of this name, in this namespace or, if none, in none.
    pub fn new(kind: &Kind, plural: &str, namespace: Option<&'a str>, name: &'a str) -> Self {
        let scope = if namespace.is_some() { Scope::Namespaced } else { Scope::Cluster };
        let Kind { group, version, kind } = kind.clone();
        Self {
            resource: Resource { group, version, kind, plural: plural.to_owned(), scope },
            namespace,
            name,
        }
    }

    pub(crate) fn plural_and_group(&self) -> String {
        let Resource { plural, group, .. } = &self.resource;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }
}

impl fmt::Display for Endpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.resource.kind())?;
        if let Some(namespace) = self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(self.name)
    }
}

/// Whether a request is to change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It is.
    Store,
    /// The API server does everything but store the result.
    DryRun,
}

/// How much of the object the API server is asked to answer with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// All of it.
    Whole,
    /// Its metadata, where the API server can leave out the rest: a third of a pod.
    Metadata,
}

impl Answer {
    fn accept(self) -> &'static str {
        match self {
            Self::Whole => "application/json",
            Self::Metadata => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;q=0.9"
            }
        }
    }
}

/// What a server-side apply does about fields of other managers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflicts {
    /// Takes them.
    Force,
    /// Reports them and changes nothing.
    Report,
}

/// What became of a deletion.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// The object does not exist any more.
    Gone,
    /// It waits for its finalizers or its grace period.
    Going(Box<Object>),
}

pub(crate) struct Call<'a> {
    pub(crate) verb: Verb,
    pub(crate) mode: Mode,
    pub(crate) at: &'a Endpoint<'a>,
    pub(crate) subresource: Option<&'a str>,
    query: &'a str,
    answer: Answer,
    pub(crate) body: Vec<u8>,
}

/// Sends writes under one field manager. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    client: kube::Client,
    manager: Arc<str>,
    fence: Arc<dyn Fence>,
    counters: Arc<WriteCounters>,
    rehearsal: Option<Arc<Rehearsal>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("manager", &self.manager).finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer over a client that does not retry. `manager` must be a DNS label.
    pub fn new(client: kube::Client, manager: &str, fence: Arc<dyn Fence>) -> Self {
        Self { client, manager: manager.into(), fence, counters: Arc::default(), rehearsal: None }
    }

    /// The same under another field manager; counted together.
    #[must_use]
    pub fn with_manager(&self, manager: &str) -> Self {
        Self { manager: manager.into(), ..self.clone() }
    }

    /// The same behind another fence; counted together.
    #[must_use]
    pub fn with_fence(&self, fence: Arc<dyn Fence>) -> Self {
        Self { fence, ..self.clone() }
    }

    /// The same, but nothing is stored: what would be changed is recorded.
    #[must_use]
    pub fn rehearsing(&self, rehearsal: &Arc<Rehearsal>) -> Self {
        Self { rehearsal: Some(Arc::clone(rehearsal)), ..self.clone() }
    }

    /// Whether nothing that it writes is stored.
    pub(crate) fn is_rehearsing(&self) -> bool {
        self.rehearsal.is_some()
    }

    /// What it asks before each write.
    pub fn fence(&self) -> &Arc<dyn Fence> {
        &self.fence
    }

    /// Its field manager.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// What was sent so far.
    pub fn counters(&self) -> &Arc<WriteCounters> {
        &self.counters
    }

    /// Reads one object; none if it is not there.
    pub async fn get(&self, at: &Endpoint<'_>) -> Result<Option<Object>, WriteError> {
        match self.get_text(at, None).await? {
            Some(text) => self.read(at, &text).map(Some),
            None => Ok(None),
        }
    }

    /// Reads one object, or one of its subresources, as it is on the wire.
    pub(crate) async fn get_text(
        &self,
        at: &Endpoint<'_>,
        subresource: Option<&str>,
    ) -> Result<Option<Vec<u8>>, WriteError> {
        let call = Call {
            verb: Verb::Get,
            mode: Mode::Store,
            at,
            subresource,
            query: "",
            answer: Answer::Whole,
            body: Vec::new(),
        };
        match self.send(call).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.fault == Fault::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Server-side apply. `object` is the whole configuration; a `metadata.uid` in it is a precondition.
    pub async fn apply(
        &self,
        at: &Endpoint<'_>,
        object: &Value,
        conflicts: Conflicts,
        mode: Mode,
    ) -> Result<Object, WriteError> {
        let force = if conflicts == Conflicts::Force { "&force=true" } else { "" };
        let query = format!("&fieldManager={}&fieldValidation=Strict{force}", self.manager);
        self.write(Verb::Apply, mode, at, None, &query, object).await
    }

    /// POST: fails with [`Fault::AlreadyExists`] if the name is taken.
    pub async fn create(
        &self,
        at: &Endpoint<'_>,
        object: &Value,
        mode: Mode,
        answer: Answer,
    ) -> Result<Object, WriteError> {
        let query = format!("&fieldManager={}&fieldValidation=Strict", self.manager);
        let body = object.to_string().into_bytes();
        let verb = Verb::Create;
        let text = self.send(Call { verb, mode, at, subresource: None, query: &query, answer, body }).await?;
        let mut object = self.read(at, &text)?;
        if answer == Answer::Metadata {
            object.stamp(&Arc::new(at.resource.kind()));
        }
        Ok(object)
    }

    /// JSON merge patch (RFC 7386); `metadata.uid` and `metadata.resourceVersion` in it are preconditions.
    pub async fn merge_patch(
        &self,
        at: &Endpoint<'_>,
        subresource: Option<&str>,
        patch: &Value,
    ) -> Result<Object, WriteError> {
        let query = format!("&fieldManager={}", self.manager);
        self.write(Verb::MergePatch, Mode::Store, at, subresource, &query, patch).await
    }

    /// JSON patch (RFC 6902); a `test` that does not hold is [`Fault::Precondition`].
    pub async fn json_patch(&self, at: &Endpoint<'_>, operations: &Value) -> Result<Object, WriteError> {
        let query = format!("&fieldManager={}", self.manager);
        self.write(Verb::JsonPatch, Mode::Store, at, None, &query, operations).await
    }

    /// Deletes the object with this UID. One that is not there any more, or whose name another has taken since, is
    /// [`Deleted::Gone`].
    pub async fn delete(
        &self,
        at: &Endpoint<'_>,
        uid: &str,
        propagation: Propagation,
        grace_period_seconds: Option<u64>,
    ) -> Result<Deleted, WriteError> {
        let mut options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1",
            "preconditions": {"uid": uid}, "propagationPolicy": propagation.as_str()
        });
        if let Some(seconds) = grace_period_seconds {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        let body = options.to_string().into_bytes();
        let call = Call {
            verb: Verb::Delete,
            mode: Mode::Store,
            at,
            subresource: None,
            query: "",
            answer: Answer::Whole,
            body,
        };
        let text = match self.send(call).await {
            Ok(text) => text,
            Err(error) if matches!(error.fault, Fault::NotFound | Fault::Precondition) => {
                return Ok(Deleted::Gone);
            }
            Err(error) => return Err(error),
        };
        let object = self.read(at, &text)?;
        // A `Status`, or the object as it was when it went: some kinds answer so.
        let at_once = object.kind().kind == "Status" || !object.meta().deleting;
        Ok(if at_once { Deleted::Gone } else { Deleted::Going(Box::new(object)) })
    }

    async fn write(
        &self,
        verb: Verb,
        mode: Mode,
        at: &Endpoint<'_>,
        subresource: Option<&str>,
        query: &str,
        body: &Value,
    ) -> Result<Object, WriteError> {
        let body = body.to_string().into_bytes();
        let text =
            self.send(Call { verb, mode, at, subresource, query, answer: Answer::Whole, body }).await?;
        self.read(at, &text)
    }

    fn read(&self, at: &Endpoint<'_>, text: &[u8]) -> Result<Object, WriteError> {
        let object = std::str::from_utf8(text).ok().and_then(|text| Object::parse(text).ok());
        let Some(mut object) = object else {
            let message = format!("the answer of the API server about {at} is no Kubernetes object");
            return Err(self.count(WriteError::here(Fault::Unavailable, message)));
        };
        object.keep_manager(&self.manager);
        Ok(object)
    }

    /// Sends one request. Dropping the future gives up the answer; the request may have been sent.
    async fn send(&self, call: Call<'_>) -> Result<Vec<u8>, WriteError> {
        let sent = match &self.rehearsal {
            Some(rehearsal) => rehearsal.play(self, call).await,
            None => self.send_uncounted(call).await,
        };
        sent.map_err(|error| self.count(error))
    }

    pub(crate) async fn send_uncounted(&self, call: Call<'_>) -> Result<Vec<u8>, WriteError> {
        let (at, verb, dry) = (call.at, call.verb, call.mode == Mode::DryRun);
        if call.body.len() > REQUEST_BYTES_MAX {
            let message = format!("{at}: {} bytes, at most {REQUEST_BYTES_MAX} can be sent", call.body.len());
            return Err(WriteError::here(Fault::TooLarge, message));
        }
        let changes = verb != Verb::Get && !dry;
        let time = if changes { self.fence.write_time() } else { WRITE_TIME_MAX };
        let request = call
            .into_request(time)
            .map_err(|error| WriteError::here(Fault::Invalid, format!("{at}: {error}")))?;
        // The last thing before the request leaves: all that may have waited is behind us.
        if changes && !self.fence.admits() {
            let message = "this host does not hold the Lease long enough to write";
            return Err(WriteError::here(Fault::Fenced, message));
        }
        let mut on_its_way = OnItsWay(changes.then_some(&*self.fence));
        let counted = if dry { Verb::DryRun } else { verb };
        self.counters.sent[counted as usize].fetch_add(1, Ordering::Relaxed);
        let secret = at.resource.kind().is_secret();
        let span = tracing::debug_span!("write", verb = counted.as_str(), object = %at);
        let exchange = exchange(&self.client, request, secret).instrument(span);
        let outcome = tokio::time::timeout(time, exchange).await;
        let outcome = outcome.unwrap_or_else(|_| {
            let message = format!("{at}: no answer of the API server within {time:?}");
            Err(WriteError::here(Fault::NoAnswer, message))
        });
        on_its_way.answered(&outcome);
        outcome
    }

    fn count(&self, error: WriteError) -> WriteError {
        self.counters.failed[error.reason() as usize].fetch_add(1, Ordering::Relaxed);
        error
    }
}

impl Call<'_> {
    /// The object that it is about, whatever its UID.
    pub(crate) fn target(&self) -> Reference {
        Reference {
            kind: self.at.resource.kind(),
            namespace: self.at.namespace.map(str::to_owned),
            name: self.at.name.to_owned(),
            uid: None,
        }
    }

    /// A look at the same object.
    pub(crate) fn look(&self) -> Self {
        Self {
            verb: Verb::Get,
            mode: Mode::Store,
            query: "",
            answer: Answer::Whole,
            body: Vec::new(),
            ..*self
        }
    }

    /// The same as a dry run, with this body.
    pub(crate) fn rehearsed(&self, body: Vec<u8>) -> Self {
        Self { mode: Mode::DryRun, body, ..*self }
    }

    fn into_request(self, time: Duration) -> Result<Request<kube::client::Body>, http::Error> {
        let Endpoint { resource, namespace, name } = self.at;
        let mut uri = match self.verb {
            Verb::Create => path::of_collection(resource, *namespace),
            _ => path::of_object(resource, *namespace, name),
        };
        if let Some(subresource) = self.subresource {
            uri.push('/');
            uri.push_str(subresource);
        }
        let _ = write!(uri, "?timeout={}", seconds(time));
        if self.mode == Mode::DryRun {
            uri.push_str("&dryRun=All");
        }
        uri.push_str(self.query);
        Request::builder()
            .method(self.verb.method())
            .uri(uri)
            .header(CONTENT_TYPE, self.verb.content_type())
            .header(ACCEPT, self.answer.accept())
            .body(kube::client::Body::from(self.body))
    }
}

/// A time as the API server reads it.
pub(crate) fn seconds(time: Duration) -> String {
    if time.subsec_nanos() == 0 { format!("{}s", time.as_secs()) } else { format!("{}ms", time.as_millis()) }
}

async fn exchange(
    client: &kube::Client,
    request: Request<kube::client::Body>,
    secret: bool,
) -> Result<Vec<u8>, WriteError> {
    let unreachable = |error: &dyn std::error::Error| {
        let message = format!("the API server cannot be reached: {}", causes(error));
        WriteError::here(Fault::Unavailable, message)
    };
    let response = client.send(request).await.map_err(|error| unreachable(&error))?;
    let (parts, body) = response.into_parts();
    let body =
        Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(|error| unreachable(&*error))?;
    let body = body.to_bytes();
    if parts.status.is_success() {
        return Ok(body.to_vec());
    }
    let mut error = WriteError::from_answer(parts.status.as_u16(), &body, secret);
    if error.retry_after.is_none() {
        let seconds = parts.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        error.retry_after = seconds.map(pause);
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Answers each request with this status and body, and nothing if the body is none.
    fn client(answer: Option<(u16, &'static str)>) -> kube::Client {
        let service = tower::service_fn(move |_: Request<kube::client::Body>| async move {
            let Some((status, body)) = answer else { return std::future::pending().await };
            let body = kube::client::Body::from(body.as_bytes().to_vec());
            Ok::<_, Infallible>(http::Response::builder().status(status).body(body).unwrap())
        });
        kube::Client::new(service, "default")
    }

    fn writer(answer: Option<(u16, &'static str)>) -> Writer {
        Writer::new(client(answer), "pilothouse-x", Arc::new(AlwaysOpen))
    }

    fn kind() -> Kind {
        Kind::new("example.com", "v1", "Web")
    }

    #[tokio::test]
    async fn nothing_is_written_past_the_fence_but_reads_and_dry_runs_go_on() {
        let kind = kind();
        let at = Endpoint::new(&kind, "webs", Some("n"), "a");
        let body = r#"{"apiVersion":"example.com/v1","kind":"Web","metadata":{"name":"a"}}"#;
        let writer = writer(Some((200, body))).with_fence(Arc::new(AlwaysShut));
        let object = json!({});
        let fault = |result: Result<Object, WriteError>| result.unwrap_err().fault;
        assert_eq!(fault(writer.apply(&at, &object, Conflicts::Force, Mode::Store).await), Fault::Fenced);
        assert_eq!(fault(writer.create(&at, &object, Mode::Store, Answer::Whole).await), Fault::Fenced);
        assert_eq!(fault(writer.merge_patch(&at, None, &object).await), Fault::Fenced);
        assert_eq!(fault(writer.json_patch(&at, &object).await), Fault::Fenced);
        let deleted = writer.delete(&at, "u", Propagation::Background, None).await;
        assert_eq!(deleted.unwrap_err().fault, Fault::Fenced);
        assert_eq!(writer.counters().writes(), 0);
        assert!(writer.get(&at).await.unwrap().is_some());
        assert!(writer.apply(&at, &object, Conflicts::Force, Mode::DryRun).await.is_ok());
        assert_eq!((writer.counters().sent(Verb::Get), writer.counters().sent(Verb::DryRun)), (1, 1));
        assert_eq!(writer.counters().failed(RejectReason::Unavailable), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_ends_with_the_time() {
        let kind = kind();
        let at = Endpoint::new(&kind, "webs", Some("n"), "a");
        let began = tokio::time::Instant::now();
        let error = writer(None).create(&at, &json!({}), Mode::Store, Answer::Whole).await.unwrap_err();
        assert_eq!((error.fault, began.elapsed()), (Fault::NoAnswer, WRITE_TIME_MAX));
        assert!(error.message.contains("Web.v1.example.com n/a"), "{}", error.message);
    }

    #[derive(Default)]
    struct Counting(AtomicU64);

    impl Fence for Counting {
        fn admits(&self) -> bool {
            true
        }

        fn write_time(&self) -> Duration {
            Duration::from_millis(1_200)
        }

        fn unanswered(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_fence_says_how_long_a_write_takes_and_learns_what_may_still_happen() {
        let kind = kind();
        let at = Endpoint::new(&kind, "webs", Some("n"), "a");
        let fence = Arc::new(Counting::default());
        let unanswered = |answer| {
            let (writer, fence, at) = (writer(answer).with_fence(fence.clone()), fence.clone(), at.clone());
            async move {
                let before = fence.0.load(Ordering::Relaxed);
                let _ = writer.create(&at, &json!({}), Mode::Store, Answer::Whole).await;
                let _ = writer.create(&at, &json!({}), Mode::DryRun, Answer::Whole).await;
                fence.0.load(Ordering::Relaxed) - before
            }
        };
        assert_eq!(unanswered(Some((201, "{}"))).await, 0);
        assert_eq!(unanswered(Some((409, "{}"))).await, 0, "refused");
        assert_eq!(unanswered(Some((504, "{}"))).await, 1, "the server has given up waiting for itself");
        assert_eq!(unanswered(None).await, 1);
        let began = tokio::time::Instant::now();
        let writer = writer(None).with_fence(fence.clone());
        let error = writer.create(&at, &json!({}), Mode::Store, Answer::Whole).await.unwrap_err();
        assert_eq!((error.fault, began.elapsed()), (Fault::NoAnswer, fence.write_time()));
        let before = fence.0.load(Ordering::Relaxed);
        let object = json!({});
        let mut dropped = Box::pin(writer.create(&at, &object, Mode::Store, Answer::Whole));
        assert!(futures::poll!(&mut dropped).is_pending());
        drop(dropped);
        assert_eq!(fence.0.load(Ordering::Relaxed), before + 1, "given up half-way");
    }

    #[tokio::test]
    async fn answers_of_the_wrong_form_or_size_are_errors() {
        let kind = kind();
        let at = Endpoint::new(&kind, "webs", None, "a");
        let error = writer(Some((200, "[]"))).get(&at).await.unwrap_err();
        assert_eq!(error.fault, Fault::Unavailable);
        let large = json!({"data": "x".repeat(REQUEST_BYTES_MAX)});
        let writer = writer(Some((200, "{}")));
        let error = writer.create(&at, &large, Mode::Store, Answer::Whole).await.unwrap_err();
        assert_eq!((error.fault, writer.counters().writes()), (Fault::TooLarge, 0));
    }

    #[test]
    fn requests_say_who_writes_and_for_how_long() {
        let kind = kind();
        let at = Endpoint::new(&kind, "webs", Some("n"), "a");
        let call = |verb, mode, subresource| {
            let call = Call {
                verb,
                mode,
                at: &at,
                subresource,
                query: "&fieldManager=m",
                answer: Answer::Whole,
                body: Vec::new(),
            };
            let request = call.into_request(WRITE_TIME_MAX).unwrap();
            format!("{} {}", request.method(), request.uri())
        };
        assert_eq!(
            call(Verb::Apply, Mode::DryRun, Some("status")),
            "PATCH /apis/example.com/v1/namespaces/n/webs/a/status?timeout=5s&dryRun=All&fieldManager=m"
        );
        assert_eq!(
            call(Verb::Create, Mode::Store, None),
            "POST /apis/example.com/v1/namespaces/n/webs?timeout=5s&fieldManager=m"
        );
        assert_eq!(seconds(Duration::from_millis(1_200)), "1200ms");
    }
}
