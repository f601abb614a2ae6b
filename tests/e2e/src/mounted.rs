//! A directory as kubelet shows a ConfigMap in a pod: each file is a symbolic link through `..data`, which is swapped
//! in one step (`pkg/volume/util/atomic_writer.go`).

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// See the module.
#[derive(Debug)]
pub struct Mounted {
    directory: TempDir,
    writes: u32,
}

impl Mounted {
    /// With nothing in it.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), writes: 0 }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The path under which a pod sees a file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Shows these files and no others, by kubelet's steps in kubelet's order.
    pub fn show(&mut self, files: &[(&str, &[u8])]) {
        self.writes += 1;
        let data = self.path().join("..data");
        let before = fs::read_link(&data).ok();

        let fresh = format!("..2025_01_02_03_04_05.{}", self.writes);
        fs::create_dir(self.path().join(&fresh)).unwrap();
        for (name, content) in files {
            fs::write(self.path().join(&fresh).join(name), content).unwrap();
        }
        let next = self.path().join("..data_tmp");
        symlink(&fresh, &next).unwrap();
        fs::rename(&next, &data).unwrap();
        for (name, _) in files {
            if !self.file(name).is_symlink() {
                symlink(Path::new("..data").join(name), self.file(name)).unwrap();
            }
        }
        for entry in fs::read_dir(self.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if !name.starts_with("..") && !files.iter().any(|(kept, _)| *kept == name) {
                fs::remove_file(self.file(&name)).unwrap();
            }
        }
        if let Some(before) = before {
            fs::remove_dir_all(self.path().join(before)).unwrap();
        }
    }
}
