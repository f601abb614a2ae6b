//! Writes a directory as kubelet presents a ConfigMap: the steps of `AtomicWriter.Write` in
//! `pkg/volume/util/atomic_writer.go`, in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

pub(crate) struct AtomicWriter {
    target: PathBuf,
    writes: AtomicU64,
}

impl AtomicWriter {
    pub(crate) fn new(target: &Path) -> Self {
        Self { target: target.to_owned(), writes: AtomicU64::new(0) }
    }

    pub(crate) fn write(&self, payload: &BTreeMap<&str, Vec<u8>>) {
        let data = self.target.join(DATA);
        let old = fs::read_link(&data).ok();
        // Keys that were there and are not in the payload.
        let paths: BTreeSet<&str> = payload.keys().copied().collect();
        let stale: Vec<String> = match &old {
            Some(old) => fs::read_dir(self.target.join(old))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| !paths.contains(name.as_str()))
                .collect(),
            None => Vec::new(),
        };
        // A new directory, named after the time and made unique.
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let name = format!("..2025_01_02_03_04_05.{number:010}");
        let directory = self.target.join(&name);
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        for (key, content) in payload {
            let path = directory.join(key);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        // The swap.
        symlink(&name, self.target.join(NEW_DATA)).unwrap();
        fs::rename(self.target.join(NEW_DATA), &data).unwrap();
        // Links for users, once for each key.
        for key in &paths {
            let visible = self.target.join(key);
            if fs::read_link(&visible).is_err() {
                symlink(Path::new(DATA).join(key), &visible).unwrap();
            }
        }
        for key in stale {
            fs::remove_file(self.target.join(key)).unwrap();
        }
        if let Some(old) = old {
            fs::remove_dir_all(self.target.join(old)).unwrap();
        }
    }
}
