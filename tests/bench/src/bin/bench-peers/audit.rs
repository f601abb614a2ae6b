//! The operator's requests, counted by the API server. Leases and Events do not count: they are not its work.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Between two looks at the log.
const LOOK: Duration = Duration::from_millis(50);
/// An operator that never rests is measured all the same, after this.
const REST_MAX: Duration = Duration::from_mins(2);

/// Follows the audit log of a control plane that logs the operator alone.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    offset: u64,
    /// `verb resource/subresource` of what was asked since the last [`Audit::take`], and how often.
    counts: BTreeMap<String, u64>,
}

impl Audit {
    pub(crate) fn follow(path: PathBuf) -> Self {
        Self { path, offset: 0, counts: BTreeMap::new() }
    }

    /// What was asked since the last call. The API server logs a moment after it answers: wait for [`Audit::rest`].
    pub(crate) fn take(&mut self) -> Result<Requests> {
        self.read()?;
        Ok(Requests(std::mem::take(&mut self.counts)))
    }

    /// Waits until nothing was asked for so long, and says when that began.
    pub(crate) async fn rest(&mut self, hold: Duration) -> Result<Instant> {
        let begun = Instant::now();
        let mut last = begun;
        while last.elapsed() < hold && begun.elapsed() < REST_MAX {
            tokio::time::sleep(LOOK).await;
            if self.read()? {
                last = Instant::now();
            }
        }
        Ok(last)
    }

    fn read(&mut self) -> Result<bool> {
        let Ok(mut file) = File::open(&self.path) else { return Ok(false) };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = BufReader::new(file);
        let (mut line, mut any) = (String::new(), false);
        loop {
            line.clear();
            let bytes = reader.read_line(&mut line)?;
            if !line.ends_with('\n') {
                return Ok(any);
            }
            self.offset += bytes as u64;
            let event: Value = serde_json::from_str(&line).context("a line of the audit log")?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (verb, object) = (text(&event["verb"]), &event["objectRef"]);
            let resource = text(&object["resource"]);
            // A watch is logged when it begins and when it ends.
            let ended_watch = verb == "watch" && event["stage"] == "ResponseComplete";
            if ended_watch || ["", "leases", "events"].contains(&resource.as_str()) {
                continue;
            }
            any = true;
            let request = format!("{verb} {resource}/{}", text(&object["subresource"]));
            *self.counts.entry(request.trim_end_matches('/').to_owned()).or_default() += 1;
        }
    }
}

/// How often what was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests(BTreeMap<String, u64>);

impl Requests {
    /// All that asked for a change, whether it came about or not.
    pub(crate) fn writes(&self) -> u64 {
        let is_write =
            |request: &str| !["get ", "list ", "watch "].iter().any(|verb| request.starts_with(verb));
        self.0.iter().filter(|(request, _)| is_write(request)).map(|(_, count)| count).sum()
    }

    pub(crate) fn lists(&self) -> u64 {
        self.0.iter().filter(|(request, _)| request.starts_with("list ")).map(|(_, count)| count).sum()
    }
}

impl std::fmt::Display for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<_> = self.0.iter().map(|(request, count)| format!("{count} {request}")).collect();
        f.write_str(&all.join(", "))
    }
}
