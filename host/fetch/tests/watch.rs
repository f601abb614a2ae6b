//! `watch_directories` on real directories.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod atomic_writer;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pilothouse_fetch::{Change, Origin, watch_directories};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

use atomic_writer::AtomicWriter;

/// Far longer than any wait of the watcher; only a failing test waits so long.
const DEADLINE: Duration = Duration::from_secs(30);

/// A component whose only section carries `text`.
fn component(text: &str) -> Vec<u8> {
    let mut wasm = b"\0asm\x0d\0\x01\0\0".to_vec();
    wasm.push(u8::try_from(text.len() + 2).unwrap());
    wasm.extend_from_slice(b"\x01x");
    wasm.extend_from_slice(text.as_bytes());
    wasm
}

fn text_of(wasm: &[u8]) -> String {
    String::from_utf8(wasm[12..].to_vec()).unwrap()
}

/// A running watcher and what it reported last of each file.
struct Watcher {
    changes: mpsc::Receiver<Change>,
    state: BTreeMap<PathBuf, State>,
    reports: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Found { text: String, settings: String },
    Broken { reason: &'static str, message: String },
}

impl Watcher {
    /// Starts it and takes everything up to `Synced`.
    async fn start(directories: &[&Path]) -> Self {
        let (sender, changes) = mpsc::channel(4);
        tokio::spawn(watch_directories(directories.iter().map(|path| path.to_path_buf()).collect(), sender));
        let mut watcher = Self { changes, state: BTreeMap::new(), reports: 0 };
        while watcher.next().await {}
        watcher
    }

    /// Takes one change; false for `Synced`.
    async fn next(&mut self) -> bool {
        let change = timeout(DEADLINE, self.changes.recv()).await.expect("no change in time").unwrap();
        let path = |origin: &Origin| match origin {
            Origin::File(path) => path.clone(),
            Origin::ConfigMap { .. } => panic!("{origin}"),
        };
        self.reports += 1;
        match change {
            Change::Synced => return false,
            Change::Found(artifact) => {
                let state =
                    State::Found { text: text_of(&artifact.wasm), settings: artifact.settings_text.clone() };
                self.state.insert(path(&artifact.origin), state);
            }
            Change::Broken { origin, error } => {
                let state = State::Broken { reason: error.reason(), message: error.to_string() };
                self.state.insert(path(&origin), state);
            }
            Change::Gone(origin) => {
                assert!(self.state.remove(&path(&origin)).is_some(), "{origin} was never reported");
            }
        }
        true
    }

    async fn until(&mut self, path: &Path, right: impl Fn(Option<&State>) -> bool) {
        while !right(self.state.get(path)) {
            self.next().await;
        }
    }

    async fn until_found(&mut self, path: &Path, text: &str) {
        self.until(path, |state| matches!(state, Some(State::Found { text: found, .. }) if found == text))
            .await;
    }

    async fn until_broken(&mut self, path: &Path, reason: &str) -> String {
        self.until(path, |state| matches!(state, Some(State::Broken { reason: is, .. }) if *is == reason))
            .await;
        let Some(State::Broken { message, .. }) = self.state.get(path) else { unreachable!() };
        message.clone()
    }

    async fn until_gone(&mut self, path: &Path) {
        self.until(path, |state| state.is_none()).await;
    }

    fn is_found(&self, path: &Path, text: &str) -> bool {
        matches!(self.state.get(path), Some(State::Found { text: found, .. }) if found == text)
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Writes a file aside and moves it into place.
fn place(path: &Path, bytes: &[u8]) {
    let aside = path.with_file_name(".aside");
    fs::write(&aside, bytes).unwrap();
    fs::rename(aside, path).unwrap();
}

#[tokio::test]
async fn what_is_there_comes_before_synced_and_changes_after() {
    let directory = directory();
    let (web, cron) = (directory.path().join("web.wasm"), directory.path().join("cron.wasm"));
    fs::write(&web, component("1")).unwrap();
    let mut watcher = Watcher::start(&[directory.path()]).await;
    assert!(watcher.is_found(&web, "1"));

    place(&cron, &component("1"));
    watcher.until_found(&cron, "1").await;
    place(&web, &component("2"));
    watcher.until_found(&web, "2").await;
    fs::write(directory.path().join("web.yaml"), "concurrency: 2\n").unwrap();
    let with_settings = State::Found { text: "2".to_owned(), settings: "concurrency: 2\n".to_owned() };
    watcher.until(&web, |state| state == Some(&with_settings)).await;
    fs::remove_file(&web).unwrap();
    watcher.until_gone(&web).await;
    assert!(watcher.is_found(&cron, "1"));
}

#[tokio::test]
async fn the_same_content_written_again_is_not_reported() {
    let directory = directory();
    let (web, last) = (directory.path().join("web.wasm"), directory.path().join("zzz.wasm"));
    fs::write(&web, component("1")).unwrap();
    let mut watcher = Watcher::start(&[directory.path()]).await;
    let reports = watcher.reports;
    place(&web, &component("1"));
    place(&last, &component("1"));
    watcher.until_found(&last, "1").await;
    assert_eq!(watcher.reports, reports + 1);
}

#[tokio::test]
async fn a_hundred_swaps_of_a_mounted_config_map_end_in_the_last_state() {
    let directory = directory();
    let mount = AtomicWriter::new(directory.path());
    let payload = |version: usize| {
        let text = format!("version {version}");
        let settings = format!("config: {{version: {version}}}\n");
        BTreeMap::from([("web.wasm", component(&text)), ("web.yaml", settings.into_bytes())])
    };
    mount.write(&payload(0));
    let web = directory.path().join("web.wasm");
    let mut watcher = Watcher::start(&[directory.path()]).await;
    assert!(watcher.is_found(&web, "version 0"));
    for version in 1..=100 {
        mount.write(&payload(version));
        // Let some swaps be seen one by one and others only in a row.
        if version % 10 == 0 {
            watcher.until_found(&web, &format!("version {version}")).await;
        }
        for state in watcher.state.values() {
            let State::Found { text, settings } = state else { panic!("{state:?}") };
            let number = text.strip_prefix("version ").unwrap();
            assert_eq!(*settings, format!("config: {{version: {number}}}\n"), "settings of another version");
        }
    }
    assert_eq!(watcher.state.len(), 1, "kubelet's own entries are no plugins: {:?}", watcher.state);
}

#[tokio::test]
async fn keys_of_a_mounted_config_map_come_and_go() {
    let directory = directory();
    let mount = AtomicWriter::new(directory.path());
    mount.write(&BTreeMap::from([("web.wasm", component("1")), ("cron.wasm", component("1"))]));
    let (web, cron) = (directory.path().join("web.wasm"), directory.path().join("cron.wasm"));
    let mut watcher = Watcher::start(&[directory.path()]).await;
    mount.write(&BTreeMap::from([("web.wasm", component("2"))]));
    watcher.until_gone(&cron).await;
    watcher.until_found(&web, "2").await;
    mount.write(&BTreeMap::from([("web.wasm", component("2")), ("cron.wasm", component("3"))]));
    watcher.until_found(&cron, "3").await;
    assert!(watcher.is_found(&web, "2"));
}

#[tokio::test]
async fn a_half_written_file_never_replaces_the_old_one() {
    let directory = directory();
    let web = directory.path().join("web.wasm");
    fs::write(&web, component("old")).unwrap();
    let mut watcher = Watcher::start(&[directory.path()]).await;

    // Writing in place, slowly: first half, a pause longer than the settling time, second half.
    let new = component("new version");
    let mut file = fs::File::create(&web).unwrap();
    file.write_all(&new[..new.len() / 2]).unwrap();
    let message = watcher.until_broken(&web, "Incomplete").await;
    assert!(message.contains("is it still being written?"), "{message}");
    file.write_all(&new[new.len() / 2..]).unwrap();
    drop(file);
    watcher.until_found(&web, "new version").await;
}

#[tokio::test]
async fn broken_files_say_why_and_heal() {
    let directory = directory();
    let (web, link) = (directory.path().join("web.wasm"), directory.path().join("link.wasm"));
    let settings = directory.path().join("web.yaml");
    fs::write(&web, component("1")).unwrap();
    let mut watcher = Watcher::start(&[directory.path()]).await;

    place(&web, b"<html>404</html>");
    assert!(watcher.until_broken(&web, "NotAPlugin").await.contains("begins with `<html>40`"));
    // The very version that was found before: reported again, as it is no longer broken.
    place(&web, &component("1"));
    watcher.until_found(&web, "1").await;

    place(&settings, b"concurency: 1\n");
    assert!(watcher.until_broken(&web, "InvalidSettings").await.contains("web.yaml: "));
    fs::remove_file(&settings).unwrap();
    watcher.until_found(&web, "1").await;

    std::os::unix::fs::symlink("elsewhere/web.wasm", &link).unwrap();
    let message = watcher.until_broken(&link, "Unreadable").await;
    assert!(
        message.ends_with("is a symbolic link to `elsewhere/web.wasm`, which does not exist"),
        "{message}"
    );
    fs::create_dir(directory.path().join("elsewhere")).unwrap();
    fs::write(directory.path().join("elsewhere/web.wasm"), component("linked")).unwrap();
    watcher.until_found(&link, "linked").await;
}

#[tokio::test]
async fn the_first_of_two_files_of_one_name_wins_and_the_other_waits() {
    let (first, second) = (directory(), directory());
    let (plain, packed) = (first.path().join("web.wasm"), first.path().join("web.wasm.gz"));
    let other = second.path().join("web.wasm");
    for path in [&plain, &packed, &other] {
        fs::write(path, component("same")).unwrap();
    }
    let mut watcher = Watcher::start(&[first.path(), second.path()]).await;
    assert!(watcher.is_found(&plain, "same"));
    for path in [&packed, &other] {
        let message = watcher.until_broken(path, "Duplicate").await;
        assert!(
            message.contains(&format!("{} has the same name and comes first", plain.display())),
            "{message}"
        );
    }
    fs::remove_file(&plain).unwrap();
    watcher.until_gone(&plain).await;
    assert!(watcher.is_found(&packed, "same"), "found before the other is gone");
    fs::remove_file(&packed).unwrap();
    watcher.until_gone(&packed).await;
    assert!(watcher.is_found(&other, "same"));
}

#[tokio::test]
async fn a_missing_directory_is_awaited_and_a_vanished_one_keeps_its_plugins() {
    let parent = directory();
    let (late, aside) = (parent.path().join("late"), parent.path().join("aside"));
    let web = late.join("web.wasm");
    let mut watcher = Watcher::start(&[&late]).await;
    assert_eq!(watcher.state, BTreeMap::new());

    fs::create_dir(&aside).unwrap();
    fs::write(aside.join("web.wasm"), component("1")).unwrap();
    fs::write(aside.join("cron.wasm"), component("1")).unwrap();
    fs::rename(&aside, &late).unwrap();
    watcher.until_found(&web, "1").await;
    watcher.until_found(&late.join("cron.wasm"), "1").await;

    // Replaced as a whole: at no time are its plugins reported gone, except the one that did not come back.
    fs::rename(&late, &aside).unwrap();
    fs::remove_file(aside.join("cron.wasm")).unwrap();
    fs::write(aside.join("web.wasm"), component("2")).unwrap();
    fs::rename(&aside, &late).unwrap();
    watcher.until_gone(&late.join("cron.wasm")).await;
    watcher.until_found(&web, "2").await;
    // The watch has followed to the new directory.
    place(&web, &component("3"));
    watcher.until_found(&web, "3").await;
}

#[tokio::test]
async fn an_unreadable_file_is_reported_and_read_once_it_can_be() {
    let directory = directory();
    let web = directory.path().join("web.wasm");
    fs::write(&web, component("1")).unwrap();
    fs::set_permissions(&web, fs::Permissions::from_mode(0o000)).unwrap();
    let may_read_all = fs::read(&web).is_ok(); // root
    let mut watcher = Watcher::start(&[directory.path()]).await;
    if !may_read_all {
        assert!(watcher.until_broken(&web, "Unreadable").await.contains("web.wasm: Permission denied"));
    }
    fs::set_permissions(&web, fs::Permissions::from_mode(0o644)).unwrap();
    watcher.until_found(&web, "1").await;
}

#[tokio::test]
async fn it_ends_with_its_receiver() {
    let directory = directory();
    let (sender, receiver) = mpsc::channel(1);
    let task = tokio::spawn(watch_directories(vec![directory.path().to_owned()], sender));
    drop(receiver);
    timeout(DEADLINE, task).await.unwrap().unwrap();
}
