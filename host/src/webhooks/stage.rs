//! What a connection is doing, and for how long it may. Slow clients are told from idle ones: an API server keeps its
//! connections for 90 s without a word, and whoever has begun to say something must go on.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// A handshake, and the first byte after it.
pub(super) const GREETING_MAX: Duration = Duration::from_secs(10);
/// From the first byte of a request to its last.
pub(super) const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Without a request. Longer than the API server's 90 s, so that it is the one who closes: a request that meets a
/// closing connection is not sent again.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(150);
/// An answer that nobody takes.
pub(super) const ANSWER_MAX: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Greeting,
    Idle,
    Receiving,
    Answering,
}

/// The stage of one connection; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Stage(Arc<Mutex<(Doing, Instant)>>);

impl Stage {
    /// A connection that has just been accepted.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new((Doing::Greeting, Instant::now()))))
    }

    fn set(&self, doing: Doing) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (doing, Instant::now());
    }

    /// Bytes have come.
    fn received(&self) {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(stage.0, Doing::Greeting | Doing::Idle) {
            *stage = (Doing::Receiving, Instant::now());
        }
    }

    /// The whole request is here.
    pub(super) fn answering(&self) {
        self.set(Doing::Answering);
    }

    /// The answer has been handed over.
    pub(super) fn answered(&self) {
        self.set(Doing::Idle);
    }

    /// Whether nobody is in the middle of something.
    pub(super) fn is_idle(&self) -> bool {
        let stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(stage.0, Doing::Greeting | Doing::Idle)
    }

    /// When the connection has taken too long, if it stays as it is.
    fn deadline(&self) -> Instant {
        let stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let most = match stage.0 {
            Doing::Greeting => GREETING_MAX,
            Doing::Idle => IDLE_MAX,
            Doing::Receiving => REQUEST_MAX,
            Doing::Answering => ANSWER_MAX,
        };
        stage.1 + most
    }

    /// Waits until the connection has taken too long. Cancel safe.
    pub(super) async fn overdue(&self) {
        loop {
            let deadline = self.deadline();
            if deadline <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }
}

/// Bytes that requests hold which are being received or answered, of all connections together.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicU64,
    max: u64,
}

impl Budget {
    /// So many bytes.
    pub(super) fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), max })
    }

    /// A request that holds nothing yet.
    pub(super) fn share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), bytes: 0 }
    }
}

/// What one request holds of a [`Budget`]; given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Share {
    /// Takes more; false if that is not there.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let max = self.budget.max;
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= max);
        let taken = self.budget.used.try_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        self.bytes += if taken { bytes } else { 0 };
        taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A connection that tells its stage of what it reads.
pub(super) struct Staged<T> {
    pub(super) inner: T,
    pub(super) stage: Stage,
}

impl<T: AsyncRead + Unpin> AsyncRead for Staged<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.stage.received();
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Staged<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole seconds, as tokio's timers are a millisecond late.
    async fn takes(stage: &Stage) -> Duration {
        let began = Instant::now();
        stage.overdue().await;
        Duration::from_secs(began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_may_stay_and_who_begins_must_go_on() {
        let stage = Stage::new();
        assert_eq!(takes(&stage).await, GREETING_MAX);
        stage.answered();
        assert_eq!(takes(&stage).await, IDLE_MAX);
        stage.answered();
        stage.received();
        tokio::time::sleep(REQUEST_MAX / 2).await;
        // A drop now and then does not help.
        stage.received();
        assert!(!stage.is_idle() && takes(&stage).await <= REQUEST_MAX / 2);
        stage.answering();
        assert_eq!(takes(&stage).await, ANSWER_MAX);
    }

    #[test]
    fn what_requests_hold_is_bounded_and_given_back() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(one.take(6) && other.take(4) && !one.take(1) && !other.take(usize::MAX));
        drop(one);
        assert!(other.take(6));
        drop(other);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
