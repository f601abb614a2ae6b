//! Certificates that somebody else makes, as cert-manager's Secrets are mounted: `tls.crt`, `tls.key` and `ca.crt` in a
//! directory. Looked at again and again rather than watched: kubelet takes up to a minute to bring a change, and a look
//! is three small files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use tokio::time::Instant;

use super::InStep;
use super::serving::Serving;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(5);
/// A certificate or a key of some hundred names has a few KiB, a bundle of authorities tens.
const BYTES_MAX: u64 = 1 << 20;
/// How long the API server gets to hear of another authority before its certificate is shown.
const SETTLE: Duration = Duration::from_secs(10);
/// Whoever cannot tell the API server must not keep a certificate from being renewed for ever.
const TOLD_WITHIN: Duration = Duration::from_mins(5);

/// What the directory holds.
#[derive(Clone, PartialEq, Eq)]
struct Files {
    certificate: String,
    key: String,
    ca: String,
}

impl Files {
    fn read(directory: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = directory.join(name);
            let look = || {
                let size = std::fs::metadata(&path)?.len();
                if size > BYTES_MAX {
                    return Err(std::io::Error::other(format!(
                        "{size} bytes, at most {BYTES_MAX} would be right"
                    )));
                }
                std::fs::read_to_string(&path)
            };
            look().with_context(|| path.display().to_string())
        };
        Ok(Self { certificate: read("tls.crt")?, key: read("tls.key")?, ca: read("ca.crt")? })
    }
}

/// Shows what the directory holds until it is dropped.
pub(super) async fn follow(
    directory: PathBuf,
    serving: Serving,
    bundles: watch::Sender<Option<String>>,
    in_step: watch::Receiver<Option<InStep>>,
) {
    let mut shown: Option<Files> = None;
    // Read, and not shown yet.
    let mut coming: Option<(Files, Instant)> = None;
    let mut said = String::new();
    loop {
        match Files::read(&directory) {
            Ok(files) if shown.as_ref() == Some(&files) => coming = None,
            Ok(files) if coming.as_ref().is_some_and(|(coming, _)| *coming == files) => {}
            Ok(files) => {
                // Both authorities, so that replicas whose files are older are believed as well.
                let old = shown.as_ref().map(|shown| &*shown.ca).filter(|old| *old != files.ca);
                bundles.send_replace(Some([&files.ca, old.unwrap_or_default()].concat()));
                coming = Some((files, Instant::now()));
            }
            Err(error) => say(&mut said, format!("{error:#}")),
        }
        if let Some((files, since)) = &coming
            && (is_known(files, shown.as_ref(), &in_step) || since.elapsed() > TOLD_WITHIN)
        {
            match serving.show(&files.certificate, &files.key) {
                Ok(()) => {
                    tracing::info!(directory = %directory.display(), "the webhooks have a certificate");
                    said.clear();
                    shown = Some(files.clone());
                    coming = None;
                }
                // A half-written pair is whole at the next look.
                Err(error) => {
                    say(&mut said, format!("{}: {error:#}", directory.display()));
                    coming = None;
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether the API server believes this certificate: its authority is that of the one before, or it has been told.
fn is_known(files: &Files, shown: Option<&Files>, in_step: &watch::Receiver<Option<InStep>>) -> bool {
    let Some(shown) = shown else { return true };
    let told = in_step.borrow();
    let told = told.as_ref().filter(|told| told.bundle.contains(&files.ca));
    shown.ca == files.ca || told.is_some_and(|told| told.since.elapsed() >= SETTLE)
}

fn say(said: &mut String, problem: String) {
    if *said != problem {
        tracing::warn!("the webhooks' certificate cannot be read: {problem}");
        *said = problem;
    }
}
