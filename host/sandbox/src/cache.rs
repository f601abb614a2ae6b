//! Compiled code on disk, by digest of the component and kind of engine.
//!
//! The files are native code that the host runs, so the directory belongs to this user and is closed to all others,
//! which is checked when it is opened. Each file's name carries the digest of its content, which is checked on the
//! opened file before it is mapped: a truncated, damaged or foreign file is removed, and the component is compiled
//! again. Files are written beside, then renamed, and never changed: a mapping stays valid even after its file is
//! evicted.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use pilothouse_model::names::Digest;

use crate::error::SandboxError;

/// Bytes of all files together. A Rust plugin takes some 300 KiB, a Python one some 50 MiB.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes of one file.
pub(crate) const FILE_BYTES_MAX: u64 = 256 << 20;
/// Age at which a file that was never renamed counts as left behind by a crash.
const UNFINISHED_AGE: Duration = Duration::from_hours(1);
const SUFFIX: &str = ".code";
const UNFINISHED_SUFFIX: &str = ".tmp";

/// The directory.
#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    /// The second part of each name.
    engine: String,
    bytes_max: u64,
}

impl Cache {
    /// Makes the directory, or checks the one that is there.
    pub(crate) fn open(directory: &Path, engine: String) -> Result<Self, SandboxError> {
        let error = |problem: String| SandboxError::CacheDir { path: directory.to_owned(), problem };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|cause| error(format!("cannot be made: {cause}")))?;
        let metadata = fs::symlink_metadata(directory).map_err(|cause| error(cause.to_string()))?;
        let user = rustix::process::geteuid().as_raw();
        if !metadata.is_dir() {
            return Err(error("is no directory; a symbolic link is not followed".to_owned()));
        }
        if metadata.uid() != user {
            let problem = format!("belongs to user {}, it must belong to user {user}", metadata.uid());
            return Err(error(problem));
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(error(format!(
                "has mode {mode:04o}: others may read or write it, 0700 would be right"
            )));
        }
        Ok(Self { directory: directory.to_owned(), engine, bytes_max: BYTES_MAX })
    }

    /// The compiled code of a component, verified, if it is there.
    pub(crate) fn load(&self, component: &Digest) -> Option<File> {
        let prefix = self.prefix(component);
        for name in self.names().ok()? {
            let Some(expected) = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(SUFFIX)) else {
                continue;
            };
            let path = self.directory.join(&name);
            match verified(&path, expected) {
                Ok(file) => return Some(file),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cached code is not usable and will be made again");
                    // If it cannot be removed it is only found unusable again.
                    let _ = fs::remove_file(&path);
                }
            }
        }
        None
    }

    /// Keeps compiled code, evicts the oldest if there is too much, and opens it.
    pub(crate) fn store(&self, component: &Digest, code: &[u8]) -> io::Result<File> {
        let name = format!("{}{}{SUFFIX}", self.prefix(component), Digest::of(code).hex());
        let path = self.directory.join(&name);
        let unfinished = Unfinished::create(&self.directory)?;
        unfinished.write(code)?;
        unfinished.finish(&path)?;
        if let Err(error) = self.evict(&name) {
            tracing::warn!(directory = %self.directory.display(), %error, "cached code cannot be evicted");
        }
        verified(&path, &Digest::of(code).hex())
    }

    /// Removes what is kept for a component, as it cannot be used.
    pub(crate) fn forget(&self, component: &Digest) {
        let prefix = self.prefix(component);
        for name in self.names().unwrap_or_default().into_iter().filter(|name| name.starts_with(&prefix)) {
            // If it cannot be removed it is only found unusable again.
            let _ = fs::remove_file(self.directory.join(name));
        }
    }

    fn prefix(&self, component: &Digest) -> String {
        format!("{}-{}-", component.hex(), self.engine)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            // A name that is no UTF-8 is not ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    /// Removes the files that were used least recently until the rest fits, and what crashes left behind.
    fn evict(&self, keep: &str) -> io::Result<()> {
        let mut files = Vec::new();
        for name in self.names()? {
            // It may vanish meanwhile: another host evicts too.
            let Ok(metadata) = fs::metadata(self.directory.join(&name)) else { continue };
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if name.ends_with(UNFINISHED_SUFFIX) {
                if used.elapsed().is_ok_and(|age| age > UNFINISHED_AGE) {
                    fs::remove_file(self.directory.join(&name))?;
                }
            } else if name.ends_with(SUFFIX) {
                files.push((used, metadata.len(), name));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, name) in files {
            if total <= self.bytes_max {
                break;
            }
            if name != keep {
                fs::remove_file(self.directory.join(&name))?;
                total -= bytes;
            }
        }
        Ok(())
    }
}

/// Opens a file and checks it against the digest in its name. What is returned has exactly that content, and as files
/// here are never changed, still has it when it is mapped.
fn verified(path: &Path, expected: &str) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("is no file of this user"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("is too large"));
    }
    if digest(&mut file)?.hex() != expected {
        return Err(io::Error::other("its content is not what its name says"));
    }
    // Time of last use, for eviction. A read-only file system keeps the time of its making, which does as well.
    let _ = file.set_modified(SystemTime::now());
    file.rewind()?;
    Ok(file)
}

fn digest(file: &mut File) -> io::Result<Digest> {
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(Digest::of(&content))
}

/// A file that is removed unless it was finished.
struct Unfinished {
    path: PathBuf,
    file: File,
    finished: bool,
}

impl Unfinished {
    fn create(directory: &Path) -> io::Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{}-{number}{UNFINISHED_SUFFIX}", std::process::id()));
        // One that a crash left behind under the same process id, as in a container, is overwritten.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)?;
        Ok(Self { path, file, finished: false })
    }

    fn write(&self, content: &[u8]) -> io::Result<()> {
        (&self.file).write_all(content)
    }

    fn finish(mut self, path: &Path) -> io::Result<()> {
        // No fsync: a file that a crash of the machine tore is found out by its digest.
        fs::rename(&self.path, path)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            // If that fails too, `evict` removes it later.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(directory: &Path) -> Cache {
        Cache::open(directory, "0123456789abcdef".to_owned()).unwrap()
    }

    fn content(mut file: File) -> Vec<u8> {
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        content
    }

    fn files(directory: &Path) -> Vec<PathBuf> {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn what_was_stored_is_loaded_by_the_same_component_and_engine_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made/below");
        let cache = cache(&path);
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        assert_eq!(content(cache.store(&one, b"code").unwrap()), b"code");
        assert_eq!(content(cache.load(&one).unwrap()), b"code");
        assert!(cache.load(&other).is_none());
        assert!(Cache::open(&path, "another".to_owned()).unwrap().load(&one).is_none());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn damaged_files_are_removed_and_never_returned() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory.path().join("cache"));
        let component = Digest::of(b"component");
        cache.store(&component, b"code").unwrap();
        let path = files(&cache.directory).remove(0);
        for damaged in [&b"cod"[..], b"c0de", b"", b"code and more"] {
            fs::write(&path, damaged).unwrap();
            assert!(cache.load(&component).is_none(), "{damaged:?}");
            assert!(!path.exists());
            cache.store(&component, b"code").unwrap();
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(cache.load(&component).is_none(), "links are not followed");
    }

    #[test]
    fn the_oldest_files_are_evicted_first() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache { bytes_max: 10, ..cache(&directory.path().join("cache")) };
        let digests: Vec<Digest> = (0..3_u8).map(|at| Digest::of(&[at])).collect();
        let long_ago = SystemTime::now() - Duration::from_secs(1000);
        for (at, digest) in digests.iter().enumerate() {
            let file = cache.store(digest, b"12345").unwrap();
            let age = Duration::from_secs(at as u64);
            file.set_modified(long_ago + age).unwrap();
        }
        assert!(cache.load(&digests[0]).is_none());
        assert!(cache.load(&digests[1]).is_some() && cache.load(&digests[2]).is_some());
    }

    #[test]
    fn unfinished_files_are_swept_when_they_are_old() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(&directory.path().join("cache"));
        let (old, young) = (cache.directory.join("1-0.tmp"), cache.directory.join("1-1.tmp"));
        for path in [&old, &young] {
            fs::write(path, b"half").unwrap();
        }
        let file = File::options().write(true).open(&old).unwrap();
        file.set_modified(SystemTime::now() - 2 * UNFINISHED_AGE).unwrap();
        cache.store(&Digest::of(b"component"), b"code").unwrap();
        assert!(!old.exists() && young.exists());
    }

    #[test]
    fn a_directory_that_others_may_enter_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let error = Cache::open(&open, String::new()).unwrap_err().to_string();
        assert!(error.contains("has mode 0755") && error.contains("0700 would be right"), "{error}");

        fs::set_permissions(&open, fs::Permissions::from_mode(0o700)).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        let error = Cache::open(&link, String::new()).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
    }
}
