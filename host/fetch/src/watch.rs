//! Follows plugin directories: events wake, scans decide.
//!
//! inotify watches the directories and not the files, as files are swapped: by kubelet, which renames a symbolic
//! link `..data` to a fresh directory, and by whoever moves a finished file into place. Some mounts tell nothing,
//! and a directory that does not exist cannot be watched, so a slow poll goes on besides.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::scan::{Change, Hints, Notice, Scanned, Scanner};

/// A look without an event while all directories are watched. It costs a listing and two `stat` for each plugin.
const POLL_WATCHED: Duration = Duration::from_secs(5);

/// The same while one of them is missing or tells nothing.
pub(crate) const POLL_UNWATCHED: Duration = Duration::from_secs(1);

/// Events of one swap or copy come in a row; one scan serves them all.
const GATHER: Duration = Duration::from_millis(20);

/// The link that kubelet swaps (`pkg/volume/util/atomic_writer.go`).
const KUBELET_DATA: &str = "..data";

/// Bytes of events read at once. Each takes 16 and the name; more are read in a further round.
const EVENT_BYTES: usize = 4096;

/// Reports the plugins in these directories, and then each change, until the receiver is dropped.
///
/// What is there at the start comes first, then [`Change::Synced`]. A state that lasts is always reported; one that
/// is replaced at once may be skipped. Errors of directories are logged, one line each. Dropping the future leaves
/// nothing behind but at most one scan, which ends with the next change that it would report.
pub async fn watch_directories(directories: Vec<PathBuf>, changes: mpsc::Sender<Change>) {
    let mut events = Events::open();
    let mut scanner = Scanner::new(directories.clone());
    let mut synced = false;
    loop {
        // Watched before they are listed, so that nothing falls between.
        let watched = events.watch(&directories);
        let hints = events.drain();
        let sender = changes.clone();
        let scan = spawn_blocking(move || {
            let mut emit = |change| match sender.blocking_send(change) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            let scanned = scanner.scan(&hints, &mut emit);
            (scanner, scanned)
        });
        let scanned: Scanned;
        (scanner, scanned) = match scan.await {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return, // the runtime shuts down
        };
        for notice in &scanned.notices {
            if let Notice::Listed { .. } = notice {
                tracing::info!("{notice}");
            } else {
                tracing::warn!("{notice}");
            }
        }
        if !synced {
            synced = true;
            if changes.send(Change::Synced).await.is_err() {
                return;
            }
        }
        let poll = if watched { POLL_WATCHED } else { POLL_UNWATCHED };
        tokio::select! {
            () = changes.closed() => return,
            () = events.some() => sleep(GATHER).await,
            () = sleep(scanned.look_again.map_or(poll, |look_again| look_again.min(poll))) => {}
        }
    }
}

/// The inotify instance, if the system has one to spare.
struct Events {
    inotify: Option<AsyncFd<OwnedFd>>,
    /// One for each directory, in their order; the same for two paths to one directory.
    watches: Vec<Option<i32>>,
}

impl Events {
    fn open() -> Self {
        #[expect(
            deprecated,
            reason = "its successor is `unsafe`, for descriptors that may be closed or replaced meanwhile; an `OwnedFd` moved in here cannot"
        )]
        let register = |inotify| AsyncFd::with_interest(inotify, Interest::READABLE);
        let opened = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
            .map_err(std::io::Error::from)
            .and_then(register);
        let inotify = opened
            .inspect_err(|error| {
                tracing::warn!(
                    "no inotify ({error}): plugin directories are looked at every {} s",
                    POLL_UNWATCHED.as_secs()
                );
            })
            .ok();
        Self { inotify, watches: Vec::new() }
    }

    /// Watches each directory as its path leads there now: it may have been replaced, or mounted over. True if all
    /// are watched.
    fn watch(&mut self, directories: &[PathBuf]) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let add = |directory: &PathBuf| inotify::add_watch(inotify, directory, flags).ok();
        let watches: Vec<Option<i32>> = directories.iter().map(add).collect();
        let current: BTreeSet<i32> = watches.iter().flatten().copied().collect();
        for stale in self.watches.iter().flatten().filter(|watch| !current.contains(watch)) {
            // Fails if the directory is gone, and the watch with it.
            let _ = inotify::remove_watch(inotify, *stale);
        }
        self.watches = watches;
        self.watches.iter().all(Option::is_some)
    }

    /// Waits for an event. Cancel safe: events stay until they are drained.
    async fn some(&self) {
        if let Some(inotify) = &self.inotify
            && let Ok(mut ready) = inotify.readable().await
        {
            // Whoever waits drains next; an event that comes in between makes it ready again.
            ready.clear_ready();
            return;
        }
        // No events, or the runtime ends: the poll goes on.
        std::future::pending::<()>().await;
    }

    /// Takes all events that are there.
    fn drain(&mut self) -> Hints {
        let mut hints = Hints::default();
        let Some(inotify) = &self.inotify else { return hints };
        let drained = inotify.get_ref();
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = inotify::Reader::new(drained, &mut buffer);
        // Bounded: a directory in which files are made faster than they are read must not keep the scan away.
        for _ in 0..100_000 {
            match reader.next() {
                Ok(event) => {
                    note(&mut hints, event.events(), event.file_name().map(std::ffi::CStr::to_bytes));
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        hints
    }
}

fn note(hints: &mut Hints, events: ReadFlags, name: Option<&[u8]>) {
    let name = name.map(OsStr::from_bytes);
    if events.contains(ReadFlags::QUEUE_OVERFLOW) {
        hints.all = true;
    }
    if events.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO)
        && let Some(name) = name
    {
        hints.all |= Path::new(name) == Path::new(KUBELET_DATA);
        hints.finished.insert(name.to_owned());
    }
}
