//! What changed in the plugin directories since the last look.
//!
//! A scan depends on what lies there, never on which event woke it; events only hint at files that are finished and
//! at files to read again although they look the same. Three rules make it exact:
//! - A file that was touched a moment ago and that nothing reports as finished is left alone until it settles.
//! - The attributes of a file stand for its content only once they are older than the clock's grain: two writes in
//!   one tick have the same time, and an inode is used again as soon as it is free.
//! - The binary and its settings are read as a pair: when either changed meanwhile, both are read again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pilothouse_model::names::Digest;

use crate::artifact::{Artifact, Origin, load_file, settings_path};
use crate::error::FetchError;
use crate::file_name::split;

/// For how long a file must not have been touched to be taken as finished without being told so: longer than
/// pauses within a copy over a slow disk, and far longer than the grain of file times (4 ms, or 10 ms).
pub(crate) const SETTLE: Duration = Duration::from_millis(300);

/// Plugins in one directory beyond which somebody pointed at the wrong one.
const PLUGINS_MAX: usize = 1_000;

/// Reads of a pair that changes under the reader, in one scan. The next scan goes on.
const READS_MAX: usize = 3;

/// News of one source.
#[derive(Debug)]
pub enum Change {
    /// A new plugin, a new version or new settings; or the same as before, after it had been [`Change::Broken`].
    Found(Artifact),
    /// What lies there cannot be used. Whatever was found there before should go on serving.
    Broken {
        /// Where.
        origin: Origin,
        /// Why, and what would be right.
        error: FetchError,
    },
    /// What had been found, or had been broken, is no longer there.
    Gone(Origin),
    /// Everything that was there at the start has been reported.
    Synced,
}

/// One line about a directory. Said once, until it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It cannot be listed.
    Unlisted { directory: PathBuf, problem: String },
    /// No plugin in it.
    Empty { directory: PathBuf },
    /// It can be listed again, or has its first plugin.
    Listed { directory: PathBuf, plugins: usize },
    /// More than [`PLUGINS_MAX`].
    TooMany { directory: PathBuf, plugins: usize },
    /// Settings that belong to no plugin, or are named `.yml`.
    StraySettings { path: PathBuf },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlisted { directory, problem } => write!(
                f,
                "plugin directory {}: {problem}; plugins loaded from it stay, and it is looked at again every {} s",
                directory.display(),
                crate::watch::POLL_UNWATCHED.as_secs()
            ),
            Self::Empty { directory } => write!(
                f,
                "plugin directory {} has no plugin: NAME.wasm, NAME.wasm.gz or NAME.wasm.zst would be one",
                directory.display()
            ),
            Self::Listed { directory, plugins } => {
                write!(f, "plugin directory {} has {plugins} plugin files", directory.display())
            }
            Self::TooMany { directory, plugins } => write!(
                f,
                "plugin directory {} has {plugins} plugin files: only the first {PLUGINS_MAX} by name are read",
                directory.display()
            ),
            Self::StraySettings { path } => write!(
                f,
                "settings {} are not read: NAME.yaml beside NAME.wasm would be right",
                path.display()
            ),
        }
    }
}

/// What events told since the last scan.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// Names of files that were closed by their writer or moved into place.
    pub(crate) finished: BTreeSet<OsString>,
    /// All of them: kubelet swapped `..data`, or events were lost.
    pub(crate) all: bool,
}

impl Hints {
    fn finished(&self, path: &Path) -> bool {
        self.all || path.file_name().is_some_and(|name| self.finished.contains(name))
    }
}

/// Remembers what was reported of each file.
#[derive(Debug)]
pub(crate) struct Scanner {
    directories: Vec<PathBuf>,
    seen: BTreeMap<PathBuf, Seen>,
    said: HashMap<PathBuf, Notice>,
    first: bool,
}

#[derive(Debug)]
struct Seen {
    /// Attributes that stand for the content; none: read it again.
    print: Option<PairPrint>,
    reported: Reported,
}

#[derive(Debug, PartialEq, Eq)]
enum Reported {
    Found { digest: Digest, settings_text: String },
    Broken(String),
}

/// Attributes that change whenever the content does. The time is that of the last change of the inode: unlike that
/// of the content, nobody can set it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    inode: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

/// Of the binary and of the settings beside it, if there are any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PairPrint(Print, Option<Print>);

impl Print {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            inode: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// How long to wait until it has settled; none if it has, or lies in the future, where no waiting helps.
    fn unsettled(&self, now: SystemTime) -> Option<Duration> {
        let seconds = u64::try_from(self.changed.0).ok()?;
        let nanos = u32::try_from(self.changed.1).ok()?;
        let age = now.duration_since(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)).ok()?;
        SETTLE.checked_sub(age).filter(|left| !left.is_zero())
    }
}

impl PairPrint {
    fn of(path: &Path, settings: &Path) -> io::Result<Self> {
        Ok(Self(Print::of(path)?, Print::of(settings).ok()))
    }

    fn unsettled(&self, now: SystemTime) -> Option<Duration> {
        self.0.unsettled(now).max(self.1.and_then(|settings| settings.unsettled(now)))
    }
}

/// A file of a directory's listing that may be a plugin.
struct Candidate {
    stem: String,
    path: PathBuf,
    /// False: its directory cannot be listed. It is taken to be as it was when that was last possible.
    listed: bool,
}

/// One scan under way.
struct Pass<'a> {
    hints: &'a Hints,
    first: bool,
    emit: &'a mut dyn FnMut(Change) -> ControlFlow<()>,
    look_again: Option<Duration>,
    /// Names whose file is left alone until it settles.
    settling: BTreeSet<String>,
    notices: Vec<Notice>,
}

impl Pass<'_> {
    fn look_again_in(&mut self, time: Duration) {
        self.look_again = Some(self.look_again.map_or(time, |other| other.min(time)));
    }
}

/// What a scan asks of its caller.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    /// Look again after this time: something has not settled.
    pub(crate) look_again: Option<Duration>,
    /// To be logged.
    pub(crate) notices: Vec<Notice>,
}

impl Scanner {
    pub(crate) fn new(directories: Vec<PathBuf>) -> Self {
        Self { directories, seen: BTreeMap::new(), said: HashMap::new(), first: true }
    }

    /// Looks at all directories and emits what changed: what is found and broken first, in the order of the
    /// directories and names, and last what is gone, so that a plugin under a new file name is a new version and
    /// not a removal. Blocks on file IO; a break from `emit` ends the scan early.
    pub(crate) fn scan(&mut self, hints: &Hints, emit: &mut dyn FnMut(Change) -> ControlFlow<()>) -> Scanned {
        let mut pass = Pass {
            hints,
            first: self.first,
            emit,
            look_again: None,
            settling: BTreeSet::new(),
            notices: Vec::new(),
        };
        let mut present = BTreeSet::new();
        // The first file of each name, over all directories.
        let mut winners: HashMap<String, PathBuf> = HashMap::new();
        for directory in self.directories.clone() {
            for candidate in self.list(&directory, &mut pass) {
                let Candidate { stem, path, listed } = candidate;
                // A directory that is named twice is no duplicate of itself.
                let winner = winners.entry(stem.clone()).or_insert_with(|| path.clone()).clone();
                let flow = if !listed {
                    ControlFlow::Continue(())
                } else if winner == path {
                    self.look(&path, &stem, &mut pass)
                } else {
                    let error = FetchError::Duplicate { path: path.clone(), winner };
                    self.broken(&path, error, &mut pass)
                };
                if flow.is_break() {
                    return Scanned::default();
                }
                present.insert(path);
            }
        }
        self.first = false;
        // While its successor settles under another file name, a plugin is not gone yet.
        let is_gone =
            |path: &&PathBuf| !present.contains(*path) && !pass.settling.contains(&crate::stem_of(path));
        let gone: Vec<PathBuf> = self.seen.keys().filter(is_gone).cloned().collect();
        for path in gone {
            self.seen.remove(&path);
            if (pass.emit)(Change::Gone(Origin::File(path))).is_break() {
                break;
            }
        }
        Scanned { look_again: pass.look_again, notices: pass.notices }
    }

    /// The plugin files of a directory by name. A directory that cannot be listed says nothing of its files, so
    /// those that were there are still taken to be.
    fn list(&mut self, directory: &Path, pass: &mut Pass<'_>) -> Vec<Candidate> {
        let listed = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let names: BTreeSet<String> = match listed {
            // A name that is no UTF-8 is no plugin's.
            Ok(entries) => {
                entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
            Err(error) => {
                let problem = error.to_string();
                self.say(directory, Notice::Unlisted { directory: directory.to_owned(), problem }, pass);
                let known = self.seen.keys().filter(|path| path.parent() == Some(directory));
                let candidate =
                    |path: PathBuf| Candidate { stem: crate::stem_of(&path), path, listed: false };
                return known.cloned().map(candidate).collect();
            }
        };
        let mut plugins: Vec<(&str, usize, &String)> =
            names.iter().filter_map(|name| split(name).map(|(stem, rank)| (stem, rank, name))).collect();
        plugins.sort_unstable();
        let directory_owned = directory.to_owned();
        let notice = match plugins.len() {
            0 => Notice::Empty { directory: directory_owned },
            plugins @ 1..=PLUGINS_MAX => Notice::Listed { directory: directory_owned, plugins },
            plugins => Notice::TooMany { directory: directory_owned, plugins },
        };
        self.say(directory, notice, pass);
        let stems: BTreeSet<&str> = plugins.iter().map(|(stem, ..)| *stem).collect();
        for name in names.iter().filter(|name| is_stray(name, &stems)) {
            let path = directory.join(name);
            self.say(&path.clone(), Notice::StraySettings { path }, pass);
        }
        plugins.truncate(PLUGINS_MAX);
        let candidate = |(stem, _, name): (&str, usize, &String)| Candidate {
            stem: stem.to_owned(),
            path: directory.join(name),
            listed: true,
        };
        plugins.into_iter().map(candidate).collect()
    }

    fn say(&mut self, about: &Path, notice: Notice, pass: &mut Pass<'_>) {
        if self.said.get(about) != Some(&notice) {
            self.said.insert(about.to_owned(), notice.clone());
            pass.notices.push(notice);
        }
    }

    fn look(&mut self, path: &Path, stem: &str, pass: &mut Pass<'_>) -> ControlFlow<()> {
        let settings = settings_path(path, stem);
        let print = match PairPrint::of(path, &settings) {
            Ok(print) => print,
            Err(error) => return self.broken(path, unreadable(path, error), pass),
        };
        let finished = pass.hints.finished(path) || pass.hints.finished(&settings);
        if !finished && self.seen.get(path).is_some_and(|seen| seen.print == Some(print)) {
            return ControlFlow::Continue(());
        }
        // Nobody writes through a symbolic link that is being published, and at the start nothing was told yet: a
        // half-written file is then reported broken and read again when it has settled.
        if let Some(left) = print.unsettled(SystemTime::now()) {
            pass.look_again_in(left);
            if !finished && !pass.first && !path.is_symlink() {
                pass.settling.insert(stem.to_owned());
                return ControlFlow::Continue(());
            }
        }
        let (loaded, print) = read_pair(path, &settings);
        if print.is_none() {
            pass.look_again_in(SETTLE);
        }
        let artifact = match loaded {
            Ok(artifact) => artifact,
            Err(error) => {
                let transient = error.is_transient();
                let flow = self.broken(path, error, pass);
                self.remember(path, print.filter(|_| !transient));
                return flow;
            }
        };
        let reported =
            Reported::Found { digest: artifact.digest, settings_text: artifact.settings_text.clone() };
        let flow = self.report(path, reported, || Change::Found(artifact), pass);
        self.remember(path, print);
        flow
    }

    fn remember(&mut self, path: &Path, print: Option<PairPrint>) {
        if let Some(seen) = self.seen.get_mut(path) {
            seen.print = print;
        }
    }

    fn broken(&mut self, path: &Path, error: FetchError, pass: &mut Pass<'_>) -> ControlFlow<()> {
        let reported = Reported::Broken(error.to_string());
        let origin = Origin::File(path.to_owned());
        self.report(path, reported, || Change::Broken { origin, error }, pass)
    }

    /// Emits unless the same was reported last.
    fn report(
        &mut self,
        path: &Path,
        reported: Reported,
        change: impl FnOnce() -> Change,
        pass: &mut Pass<'_>,
    ) -> ControlFlow<()> {
        if let Some(seen) = self.seen.get_mut(path) {
            seen.print = None;
            if seen.reported == reported {
                return ControlFlow::Continue(());
            }
        }
        self.seen.insert(path.to_owned(), Seen { print: None, reported });
        (pass.emit)(change())
    }
}

/// Loads a plugin with its settings so that both are of one moment. The attributes are those that stand for what was
/// read: none if they cannot, as they are too young or never held still.
fn read_pair(path: &Path, settings: &Path) -> (Result<Artifact, FetchError>, Option<PairPrint>) {
    for _ in 1..READS_MAX {
        let before = PairPrint::of(path, settings).ok();
        let loaded = load_file(path);
        if before.is_some() && PairPrint::of(path, settings).ok() == before {
            let print = before.filter(|print| print.unsettled(SystemTime::now()).is_none());
            return (loaded, print);
        }
    }
    (load_file(path), None)
}

fn unreadable(path: &Path, source: io::Error) -> FetchError {
    match fs::read_link(path) {
        Ok(target) if source.kind() == io::ErrorKind::NotFound => {
            FetchError::Dangling { path: path.to_owned(), target }
        }
        _ => FetchError::Read { path: path.to_owned(), source },
    }
}

fn is_stray(name: &str, stems: &BTreeSet<&str>) -> bool {
    match name.rsplit_once('.') {
        _ if name.starts_with('.') => false,
        Some((stem, "yaml")) => !stems.contains(stem),
        Some((stem, "yml")) => stems.contains(stem),
        _ => false,
    }
}
