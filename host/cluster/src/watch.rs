//! One watch, kept alive whatever happens to it.
//!
//! Our own rather than `kube::runtime::watcher`, for what that hides: the version of a list, without which the store
//! could not tell an object that is gone from one that is newer than the list (see [`index`](crate::index)); an
//! expired version at connect, on which it loops; the ends of streams, which it neither counts nor tells apart; and
//! it asks for streamed lists that may be older than what was shown before.

use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use futures::AsyncBufRead;
use pilothouse_model::backoff;
use pilothouse_model::object::Object;
use pilothouse_model::settings::BackoffSettings;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::answer::{self, silence};
use crate::connect::{Cluster, Lane};
use crate::error::ReadError;
use crate::index::ListToken;
use crate::pages::{Pages, Sizes};
use crate::random;
use crate::store::Store;
use crate::streamed_lists::StreamedLists;
use crate::watches::{Query, WatchCounters, WatchState};
use crate::wire::{Event, Page};

/// How long the API server keeps a watch, and by how much that varies so that watches do not all end together. Its own
/// time-out is 30 to 60 minutes; client-go asks for 5 to 10. The shorter, the sooner a stream is found out that stays
/// open and says nothing.
const LASTING_MIN: Duration = Duration::from_mins(4);
const LASTING_SPREAD_SECONDS: u64 = 60;
/// How much longer than it was asked to last a watch may be silent. Connections have a PING of their own; this is for
/// what answers that and sends no events.
const SILENCE_MARGIN: Duration = Duration::from_secs(10);
/// Until the first byte of an answer. A consistent list waits up to 3 s for the API server's cache.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Pages of a list, where the API server cannot stream it. As many objects as client-go asks for; 32 MiB of them take
/// a quarter of the host's memory for the moment in which they are read.
const PAGES: Sizes = Sizes { objects: 500, bytes_max: 32 << 20, timeout: Duration::from_mins(1) };
/// Between two objects of a streamed list. An API server that takes the request and never ends the list does not know
/// streamed lists; it is then asked for pages.
const LIST_SILENCE_MAX: Duration = Duration::from_secs(30);
/// A stream that ends by itself sooner than this counts as failed, or an API server that closes each one at once would
/// be asked without pause.
const STREAM_MIN: Duration = Duration::from_secs(1);

/// No answer, or one that repeating may change.
const PACE: BackoffSettings = BackoffSettings { base_ms: 250, cap_ms: 15_000 };
/// The kind does not exist, or the credentials are refused: somebody must act first. A CRD is noticed within 10 s.
const PACE_MISSING: BackoffSettings = BackoffSettings { base_ms: 1_000, cap_ms: 10_000 };
/// RBAC does not allow it: an administrator must act first.
const PACE_FORBIDDEN: BackoffSettings = BackoffSettings { base_ms: 2_000, cap_ms: 30_000 };

/// The task behind a [`Subscription`](crate::watches::Subscription).
pub(crate) struct Watch {
    cluster: Cluster,
    query: Arc<Query>,
    store: Arc<Store>,
    state: watch::Sender<WatchState>,
    counters: Arc<WatchCounters>,
    retry: Arc<Notify>,
    streamed_lists: Arc<StreamedLists>,
    lane: Option<Lane>,
    /// Up to which version everything is known; none: a list is needed.
    version: Option<String>,
    /// The API server streams lists, until it turns out that it does not.
    streams_lists: bool,
    /// The last stream did not end as it was asked to: the API server may be another one now, or another state of it.
    suspect: bool,
}

impl Watch {
    pub(crate) fn new(
        cluster: Cluster,
        query: Arc<Query>,
        store: Arc<Store>,
        state: watch::Sender<WatchState>,
        counters: Arc<WatchCounters>,
        retry: Arc<Notify>,
        streamed_lists: Arc<StreamedLists>,
    ) -> Self {
        let streams_lists = streamed_lists.are_offered(&query.resource);
        let (lane, version, suspect) = (None, None, false);
        Self {
            cluster,
            query,
            store,
            state,
            counters,
            retry,
            streamed_lists,
            lane,
            version,
            streams_lists,
            suspect,
        }
    }

    /// Runs until it is dropped, which leaves nothing behind.
    pub(crate) async fn run(mut self) {
        let mut failures = 0_u32;
        loop {
            let began = Instant::now();
            let streamed = self.version.is_none() && self.streams_lists;
            let end = self.session().await;
            self.suspect = !matches!(end, End::Closed) || began.elapsed() < LASTING_MIN;
            if self.state.borrow().eq(&WatchState::Synced) && began.elapsed() >= STREAM_MIN {
                failures = 0;
            }
            let error = match end {
                End::Closed if began.elapsed() >= STREAM_MIN => continue,
                End::Closed => ReadError::Unreachable("the stream was closed at once".to_owned()),
                // The connection broke, an API server was restarted: usually the next one is open at once.
                End::Broken(error) if failures == 0 => {
                    self.count(&error);
                    failures = 1;
                    continue;
                }
                End::Broken(error) | End::Refused(error) => error,
            };
            self.count(&error);
            match &error {
                ReadError::Expired(_) => {
                    WatchCounters::add(&self.counters.expired, 1);
                    self.version = None;
                }
                // The version lies ahead of an API server that was restored from a backup, or is none of its own.
                ReadError::Refused { code: 400 | 422 | 504, .. } if self.version.is_some() => {
                    self.version = None;
                }
                ReadError::Refused { code: 400 | 422, .. } if streamed && self.streams_lists => {
                    tracing::debug!(query = %self.query, %error, "no streamed lists here");
                    self.streamed_lists.refused(&self.query.resource);
                    self.streams_lists = false;
                    continue;
                }
                // A kind that comes back is another one.
                ReadError::Missing(_) => self.version = None,
                _ => {}
            }
            failures = failures.saturating_add(1);
            let delay = delay(&error, failures);
            // One expired version after a long silence is the ordinary course.
            if failures > 1 || !matches!(error, ReadError::Expired(_)) {
                self.fail(error);
            }
            // What wakes too early costs one request.
            let _ = timeout(delay, self.retry.notified()).await;
        }
    }

    /// One watch request, with the list before it if one is needed, until its stream ends.
    async fn session(&mut self) -> End {
        if self.lane.is_none() {
            match self.cluster.lane().await {
                Ok(lane) => self.lane = Some(lane),
                Err(error) => return End::Refused(ReadError::Unauthorized(error.to_string())),
            }
        }
        let Some(client) = self.lane.as_ref().map(|lane| lane.client.clone()) else { return End::Closed };
        if let Some(version) = self.version.as_deref().filter(|_| self.suspect) {
            match self.is_set_back(&client, number(version)).await {
                Ok(false) => {}
                Ok(true) => {
                    tracing::warn!(query = %self.query, version, "the API server is at an older version: listing again");
                    self.version = None;
                }
                Err(error) => return End::Refused(error),
            }
        }
        if self.version.is_none() && !self.streams_lists {
            match self.list(&client).await {
                Ok(version) => self.version = Some(version),
                Err(error) => return End::Refused(error),
            }
        }
        let lasting = LASTING_MIN + Duration::from_secs(random() % LASTING_SPREAD_SECONDS);
        let request = match self.query.watch_request(self.version.as_deref(), lasting) {
            Ok(request) => request,
            Err(error) => return End::Refused(error),
        };
        let list = self.version.is_none().then(|| List { began: self.store.list_began(), items: Vec::new() });
        let stream = match answer::stream(&client, request, OPEN_TIMEOUT).await {
            Ok(stream) => stream,
            Err(error) => return End::Refused(error),
        };
        WatchCounters::add(&self.counters.opened, 1);
        self.follow(pin!(stream), list, lasting + SILENCE_MARGIN).await
    }

    /// Whether the API server is behind what it has shown: its etcd was restored from a backup. A watch from a version
    /// that lies ahead is not refused. It says nothing until the versions have come as far again, and what happened
    /// until then it never says.
    async fn is_set_back(&self, client: &kube::Client, version: u64) -> Result<bool, ReadError> {
        match answer::text(client, self.query.version_request()?, OPEN_TIMEOUT, PAGES.bytes_max).await {
            Ok(text) => Ok((1..version).contains(&number(&Page::parse(&text)?.version))),
            // The watch itself will say what is wrong, and better.
            Err(error @ (ReadError::Unreachable(_) | ReadError::Throttled { .. })) => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// The whole list in pages; its version.
    async fn list(&self, client: &kube::Client) -> Result<String, ReadError> {
        let began = self.store.list_began();
        let (mut items, mut version) = (Vec::new(), String::new());
        let mut pages = Pages::new(&self.query, PAGES);
        while let Some(page) = pages.next(client).await? {
            self.pass_over(page.malformed, "an item of a list cannot be read");
            items.extend(page.items.into_iter().map(|object| self.store.prepare_item(object)));
            version = page.version;
        }
        self.replace(List { began, items }, &version);
        Ok(version)
    }

    async fn follow(
        &mut self,
        mut stream: impl AsyncBufRead + Unpin,
        mut list: Option<List>,
        silence_max: Duration,
    ) -> End {
        if list.is_none() {
            self.sync();
        }
        let mut buffer = Vec::new();
        loop {
            let silence_max = if list.is_some() { LIST_SILENCE_MAX } else { silence_max };
            let event = match timeout(silence_max, Event::next(&mut stream, &mut buffer)).await {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) if list.is_some() => {
                    return End::Broken(ReadError::Unreachable("the list broke off".to_owned()));
                }
                Ok(Ok(None)) => return End::Closed,
                Ok(Err(error @ ReadError::Unreachable(_))) => return End::Broken(error),
                Ok(Err(error)) => return End::Refused(error),
                Err(_) if list.is_some() => {
                    self.streams_lists = false;
                    return End::Refused(silence(silence_max));
                }
                Err(_) => return End::Broken(silence(silence_max)),
            };
            if buffer.capacity() > LINE_BYTES_KEPT {
                buffer = Vec::new();
            }
            match event {
                Event::Put(object) => match &mut list {
                    Some(list) => list.items.push(self.store.prepare_item(object)),
                    None => self.put(object),
                },
                Event::Gone(object) => match &mut list {
                    // Not promised never to happen within a streamed list.
                    Some(list) => list.items.retain(|item| item.meta().uid != object.meta().uid),
                    None => self.gone(&object),
                },
                Event::Bookmark { version, list_ends } => {
                    match list.take() {
                        Some(done) if list_ends => {
                            self.replace(done, &version);
                            self.sync();
                        }
                        Some(unfinished) => {
                            list = Some(unfinished);
                            continue;
                        }
                        None => self.store.change(|index, out| index.bookmark(number(&version), out)),
                    }
                    self.version = Some(version);
                }
                Event::Malformed(problem) => self.pass_over(1, &problem),
            }
        }
    }

    fn put(&mut self, object: Object) {
        WatchCounters::add(&self.counters.events, 1);
        self.reach(&object);
        // An answer to our own write has usually come before its event.
        let object = self.store.prepare_item(object);
        self.store.change(|index, out| index.put(object, out));
    }

    fn gone(&mut self, object: &Object) {
        WatchCounters::add(&self.counters.events, 1);
        self.reach(object);
        self.store.change(|index, out| index.gone(object, out));
    }

    /// A new stream would go on behind this object. Only numbers: what the host knows no number of, it lists again.
    fn reach(&mut self, object: &Object) {
        self.version =
            Some(object.meta().resource_version).filter(|&version| version > 0).map(|n| n.to_string());
    }

    fn replace(&self, list: List, version: &str) {
        WatchCounters::add(&self.counters.lists, 1);
        self.store.change(|index, out| index.replace(list.items, number(version), list.began, out));
    }

    fn sync(&self) {
        let before = self.state.send_replace(WatchState::Synced);
        match before {
            WatchState::Synced => {}
            WatchState::Starting => {
                tracing::debug!(query = %self.query, objects = self.store.len(), "watching");
            }
            WatchState::Failing { since, .. } => {
                let seconds = since.elapsed().as_secs();
                tracing::info!(query = %self.query, seconds, "watching again");
            }
        }
    }

    /// Says it once per kind of failure, not once per attempt.
    fn fail(&self, reason: ReadError) {
        let mut is_news = true;
        self.state.send_modify(|state| {
            let mut since = Instant::now();
            if let WatchState::Failing { reason: before, since: begun } = state {
                since = *begun;
                is_news = mem::discriminant(before) != mem::discriminant(&reason);
            }
            *state = WatchState::Failing { reason: reason.clone(), since };
        });
        if is_news {
            tracing::warn!(query = %self.query, reason = reason.reason(), error = %reason, "not watching");
        }
    }

    fn count(&self, error: &ReadError) {
        tracing::debug!(query = %self.query, %error, "the watch ended");
        WatchCounters::add(&self.counters.errors, 1);
    }

    fn pass_over(&self, count: u64, problem: &str) {
        if count > 0 {
            let counter: &AtomicU64 = &self.counters.malformed;
            WatchCounters::add(counter, count);
            tracing::warn!(query = %self.query, count, problem, "passed over");
        }
    }
}

impl Drop for Watch {
    /// Ended by a bug of ours, it must not look as if it were in sync. Ended by its last user, nobody looks.
    fn drop(&mut self) {
        let reason = ReadError::Unreachable("the watch has ended".to_owned());
        self.state.send_replace(WatchState::Failing { reason, since: Instant::now() });
    }
}

/// A buffer that one large event has stretched beyond this is not kept: there are hundreds of watches.
const LINE_BYTES_KEPT: usize = 16 << 10;

struct List {
    began: ListToken,
    items: Vec<Arc<Object>>,
}

/// How a session ended.
enum End {
    /// By the API server, as was asked for.
    Closed,
    /// The stream broke.
    Broken(ReadError),
    /// The request was refused, or the stream ended with an error.
    Refused(ReadError),
}

/// 0 if it is none, as a few aggregated APIs have it: answers to writes are then ignored and events alone count.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

/// The pace of a failure, with half of it at random: a restarted API server meets all watches of all hosts at once.
fn delay(error: &ReadError, failures: u32) -> Duration {
    let pace = match error {
        ReadError::Missing(_) | ReadError::Unauthorized(_) => &PACE_MISSING,
        ReadError::Forbidden(_) => &PACE_FORBIDDEN,
        _ => &PACE,
    };
    let full = backoff::delay(pace, failures, 0);
    let spread = u32::try_from(random() % 1_024).unwrap_or_default();
    let delay = full / 2 + full / 2 * spread / 1_024;
    delay.max(error.retry_after().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_pace_and_a_throttled_watch_waits_as_long_as_asked() {
        let missing = ReadError::Missing(String::new());
        for failures in [1, 5, u32::MAX] {
            let delay = delay(&missing, failures);
            assert!(delay >= Duration::from_millis(500) && delay <= Duration::from_secs(10), "{delay:?}");
        }
        assert!(delay(&ReadError::Unreachable(String::new()), 1) <= Duration::from_millis(250));
        let after = Duration::from_mins(1);
        assert_eq!(delay(&ReadError::Throttled { after, message: String::new() }, 1), after);
    }
}
