//! Waiting for a condition, with a deadline and a reason when it is missed.

use std::{
    future::Future,
    panic::Location,
    time::{Duration, Instant},
};

/// First and longest pause between two looks. Most conditions are met within a few hundred milliseconds; one that
/// takes longer does not need to load the API server for it.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What one look at a condition may return.
///
/// `bool` and `Option` say yes or no; a `Result` around any of them adds the reason of a look that failed, which
/// counts as "not yet". There is no meaning for other values on purpose: `Ok(false)` is a no.
pub trait Verdict {
    /// What the wait returns in the end.
    type Value;
    /// The value, or why the condition does not hold yet.
    fn settle(self) -> Result<Self::Value, String>;
}

impl Verdict for () {
    type Value = ();
    fn settle(self) -> Result<(), String> {
        Ok(())
    }
}

impl Verdict for bool {
    type Value = ();
    fn settle(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("it does not hold".to_owned()) }
    }
}

impl<T> Verdict for Option<T> {
    type Value = T;
    fn settle(self) -> Result<T, String> {
        self.ok_or_else(|| "there is none".to_owned())
    }
}

impl<V: Verdict> Verdict for anyhow::Result<V> {
    type Value = V::Value;
    fn settle(self) -> Result<V::Value, String> {
        self.map_err(|error| format!("{error:#}"))?.settle()
    }
}

/// Looks again and again until `look` says yes, and returns its value.
///
/// # Panics
/// When `deadline` has passed: with `what` was waited for, where, and what the last look said.
#[track_caller]
pub fn eventually<V, F, L>(deadline: Duration, what: &str, look: L) -> impl Future<Output = V::Value>
where
    V: Verdict,
    F: Future<Output = V>,
    L: FnMut() -> F,
{
    let caller = Location::caller();
    async move {
        match until(deadline, look).await {
            Ok(value) => value,
            Err(last) => panic!("{caller}: waited {deadline:?} for {what}; last look: {last}"),
        }
    }
}

/// As [`eventually`], for code that has something to say about the failure: the error is what the last look said.
pub(crate) async fn until<V, F, L>(deadline: Duration, mut look: L) -> Result<V::Value, String>
where
    V: Verdict,
    F: Future<Output = V>,
    L: FnMut() -> F,
{
    let end = Instant::now() + deadline;
    let mut pause = PAUSE_MIN;
    let mut last = None;
    loop {
        // A look that hangs must not outlast the deadline, and must not hide what the one before it said.
        let left = end.saturating_duration_since(Instant::now());
        let Ok(verdict) = tokio::time::timeout(left, look()).await else {
            return Err(last.unwrap_or_else(|| "it never returned".to_owned()));
        };
        let reason = match verdict.settle() {
            Ok(value) => return Ok(value),
            Err(reason) => reason,
        };
        if left.is_zero() {
            return Err(reason);
        }
        last = Some(reason);
        tokio::time::sleep(pause.min(left)).await; // so that the last look is at the deadline
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn looks_until_there_is_a_value() {
        let looks = AtomicUsize::new(0);
        let value = eventually(Duration::from_secs(5), "the third look", || async {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            Ok::<_, anyhow::Error>((look == 2).then_some(look))
        });
        assert_eq!(value.await, 2);
    }

    #[tokio::test]
    async fn a_missed_deadline_tells_the_last_reason() {
        let missed =
            until(Duration::from_millis(50), || async { Err::<bool, _>(anyhow::anyhow!("still raining")) });
        assert_eq!(missed.await.unwrap_err(), "still raining");
    }

    #[tokio::test]
    async fn a_look_that_hangs_does_not_outlast_the_deadline() {
        let missed = until(Duration::from_millis(50), std::future::pending::<bool>);
        assert_eq!(missed.await.unwrap_err(), "it never returned");
    }
}
