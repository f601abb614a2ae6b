//! What was asked of the API server, counted where requests leave: by verb and status, and how long the answers took.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, Request};

/// Upper bounds of the buckets of [`Durations`], seconds: those of `rest_client_request_duration_seconds` in
/// k8s.io/component-base, so that one dashboard shows all clients of an API server.
pub const DURATION_BOUNDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Requests of this process since its start. Bounded by itself: there are seven verbs and some dozen statuses.
#[derive(Debug, Default)]
pub struct RequestCounts(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    counts: BTreeMap<(&'static str, u16), u64>,
    durations: BTreeMap<&'static str, Durations>,
}

/// How long the answers to one verb took, up to their first byte.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Durations {
    /// Answers within each of [`DURATION_BOUNDS`] and above the one before it.
    pub buckets: [u64; DURATION_BOUNDS.len()],
    /// All answers, also the slower ones.
    pub count: u64,
    /// All of them together, seconds.
    pub sum: f64,
}

impl RequestCounts {
    /// An answer came after this time, or (status 0) none.
    pub(crate) fn add(&self, verb: &'static str, status: u16, took: Duration) {
        let mut book = self.lock();
        *book.counts.entry((verb, status)).or_default() += 1;
        let (durations, seconds) = (book.durations.entry(verb).or_default(), took.as_secs_f64());
        durations.count += 1;
        durations.sum += seconds;
        if let Some(bucket) = DURATION_BOUNDS.iter().position(|bound| seconds <= *bound) {
            durations.buckets[bucket] += 1;
        }
    }

    /// All counts: verb (`GET`, `WATCH`, `POST`, `PATCH`, `PUT`, `DELETE`, `OTHER`), status (0: there was no answer),
    /// requests.
    pub fn snapshot(&self) -> Vec<(&'static str, u16, u64)> {
        self.lock().counts.iter().map(|(&(verb, status), &count)| (verb, status, count)).collect()
    }

    /// How long answers took, by verb.
    pub fn durations(&self) -> Vec<(&'static str, Durations)> {
        self.lock().durations.iter().map(|(&verb, &durations)| (verb, durations)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The verb that a request is counted under.
pub(crate) fn verb<B>(request: &Request<B>) -> &'static str {
    match *request.method() {
        Method::GET if request.uri().query().is_some_and(|query| query.contains("watch=true")) => "WATCH",
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_counted_apart_from_other_gets() {
        let verb =
            |method: Method, uri: &str| verb(&Request::builder().method(method).uri(uri).body(()).unwrap());
        assert_eq!(verb(Method::GET, "/api/v1/pods?&watch=true&timeoutSeconds=1"), "WATCH");
        assert_eq!(verb(Method::GET, "/api/v1/pods?&limit=500"), "GET");
        assert_eq!(verb(Method::HEAD, "/"), "OTHER");
    }

    #[test]
    fn answers_are_counted_by_status_and_by_time() {
        let counts = RequestCounts::default();
        counts.add("GET", 200, Duration::from_millis(5));
        counts.add("GET", 200, Duration::from_millis(90));
        counts.add("PATCH", 0, Duration::from_secs(100));
        assert_eq!(counts.snapshot(), [("GET", 200, 2), ("PATCH", 0, 1)]);
        let durations: BTreeMap<_, _> = counts.durations().into_iter().collect();
        assert_eq!(durations["GET"].buckets[..3], [1, 0, 1], "a bound belongs to its bucket");
        assert!((durations["GET"].sum - 0.095).abs() < 1e-9);
        assert_eq!((durations["PATCH"].count, durations["PATCH"].buckets.iter().sum::<u64>()), (1, 0));
    }
}
