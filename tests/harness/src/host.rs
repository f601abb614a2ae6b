//! The program under test: starts it, watches it, ends it in every way.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    custody::{Custody, Standing, log_tail},
    guardian::{Blow, Program},
    metrics::Metrics,
    ports::free_port,
    process::{Process, Usage},
    wait::until,
    workspace,
};

/// What the guardian and the log call it.
const NAME: &str = "pilothouse";
/// Compiling plugins comes before readiness; an interpreted language's takes ten seconds on two busy cores.
const READY_DEADLINE: Duration = Duration::from_mins(2);
/// A host that was asked to end finishes its passes and gives up its lease first.
const END_DEADLINE: Duration = Duration::from_secs(40);
/// One answer of `/readyz` or `/metrics`.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// How `pilothouse run` is called.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// `--kubeconfig`.
    pub kubeconfig: PathBuf,
    /// `--plugins`, once for each.
    pub plugins: Vec<PathBuf>,
    /// `--plugin-configmaps`.
    pub plugin_config_maps: Option<String>,
    /// `--apply-crds`.
    pub apply_crds: bool,
    /// `--namespace`, once for each.
    pub namespaces: Vec<String>,
    /// `--resync`, whole seconds.
    pub resync: Option<Duration>,
    /// `--lease-namespace`. None: that of the kubeconfig, which is `default`.
    pub lease_namespace: Option<String>,
    /// Anything else, as it is.
    pub arguments: Vec<String>,
    /// Added to the test's own environment (`RUST_LOG`, …).
    pub environment: BTreeMap<String, String>,
}

impl HostOptions {
    /// The host with these credentials and nothing else.
    pub fn new(kubeconfig: impl Into<PathBuf>) -> Self {
        Self { kubeconfig: kubeconfig.into(), ..Self::default() }
    }

    fn arguments(&self, listen: SocketAddr) -> Vec<String> {
        let mut arguments = vec!["run".to_owned()];
        let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
        add("--kubeconfig", self.kubeconfig.display().to_string());
        add("--listen", listen.to_string());
        for directory in &self.plugins {
            add("--plugins", directory.display().to_string());
        }
        if let Some(namespace) = &self.plugin_config_maps {
            add("--plugin-configmaps", namespace.clone());
        }
        for namespace in &self.namespaces {
            add("--namespace", namespace.clone());
        }
        if let Some(resync) = self.resync {
            add("--resync", resync.as_secs().to_string());
        }
        if let Some(namespace) = &self.lease_namespace {
            add("--lease-namespace", namespace.clone());
        }
        arguments.extend(self.apply_crds.then(|| "--apply-crds".to_owned()));
        arguments.extend(self.arguments.iter().cloned());
        arguments
    }
}

/// A host process. Dropping it kills it, and prints the end of its log if the test is panicking.
#[derive(Debug)]
pub struct Host {
    custody: Custody,
    program: Program,
    listen: SocketAddr,
}

impl Host {
    /// Starts the host and waits until `/readyz` answers 200. The binary is `PILOTHOUSE_BIN`, else the one that
    /// this workspace builds in its release profile.
    pub async fn start(options: HostOptions) -> Result<Self> {
        let host = Self::spawn(&options)?;
        match host.ready().await {
            Ok(()) => Ok(host),
            // Another process was faster to take the port that was free a moment ago.
            Err(_) if host.log().contains("Address already in use") => {
                let host = Self::spawn(&options)?;
                host.ready().await?;
                Ok(host)
            }
            Err(error) => Err(error),
        }
    }

    /// Starts the host and does not wait: for hosts that are expected to fail, or to stand by.
    pub fn spawn(options: &HostOptions) -> Result<Self> {
        let custody = Custody::begin()?;
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let set = std::env::var_os("PILOTHOUSE_BIN").map(PathBuf::from);
        let path = set.unwrap_or_else(|| workspace::binary("pilothouse"));
        if !path.is_file() {
            bail!(
                "no host at {}: build it with `cargo build --release` or set PILOTHOUSE_BIN",
                path.display()
            );
        }
        let program = Program {
            name: NAME.to_owned(),
            path,
            arguments: options.arguments(listen),
            environment: options.environment.clone(),
        };
        custody.start(program.clone())?;
        Ok(Self { custody, program, listen })
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&self) -> Result<()> {
        let look = || async {
            match self.custody.standing(NAME) {
                Ok(Standing::Running(_)) => {}
                Ok(Standing::Ended(status)) => {
                    return Ok(Some(Err(self.failure(&format!("ended ({status})")))));
                }
                Err(error) => return Ok(Some(Err(error))),
            }
            let (status, body) = self.get("/readyz").await?;
            if status != 200 {
                bail!("/readyz answers {status}: {body}");
            }
            Ok(Some(Ok(())))
        };
        match until(READY_DEADLINE, look).await {
            Ok(outcome) => outcome,
            Err(last) => Err(self.failure(&format!("is not ready after {READY_DEADLINE:?}: {last}"))),
        }
    }

    /// Kills it with SIGKILL and returns when it is gone.
    pub fn kill_9(&self) -> Result<()> {
        self.custody.deal(NAME, Blow::Kill).map(drop)
    }

    /// Stops it in its tracks (SIGSTOP), as a machine that hangs would.
    pub fn pause(&self) -> Result<()> {
        self.custody.deal(NAME, Blow::Pause).map(drop)
    }

    /// Lets a paused host go on.
    pub fn resume(&self) -> Result<()> {
        self.custody.deal(NAME, Blow::Resume).map(drop)
    }

    /// Asks it to end (SIGTERM) and returns its exit status in words, such as `exit status: 0`.
    pub async fn terminate(&self) -> Result<String> {
        self.custody.deal(NAME, Blow::Terminate)?;
        self.ended(END_DEADLINE).await
    }

    /// Waits until it has ended by itself and returns its exit status in words.
    pub async fn ended(&self, deadline: Duration) -> Result<String> {
        let look = || async {
            let standing = self.custody.standing(NAME);
            standing.map(|standing| match standing {
                Standing::Ended(status) => Some(status),
                Standing::Running(_) => None,
            })
        };
        let status = until(deadline, look).await;
        status.map_err(|_| self.failure(&format!("still runs after {deadline:?}")))
    }

    /// Starts it again with the same arguments and port, after a kill if it still runs, and waits until it is
    /// ready. Its log goes on in the same file.
    pub async fn restart(&self) -> Result<()> {
        self.kill_9()?;
        self.custody.start(self.program.clone())?;
        self.ready().await
    }

    /// Its process, if it runs.
    pub fn process(&self) -> Option<Process> {
        match self.custody.standing(NAME) {
            Ok(Standing::Running(process)) => Some(process),
            _ => None,
        }
    }

    /// Its memory and CPU time so far.
    pub fn usage(&self) -> Result<Usage> {
        self.process().context("the host does not run")?.usage()
    }

    /// The address of `/readyz`, `/metrics` and so on.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Scrapes `/metrics`.
    pub async fn metrics(&self) -> Result<Metrics> {
        let (status, body) = self.get("/metrics").await?;
        if status != 200 {
            bail!("/metrics answers {status}: {body}");
        }
        Ok(Metrics::parse(&body))
    }

    /// Status and body of a GET request to the host.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let answer = tokio::time::timeout(ANSWER_DEADLINE, get(self.listen, path));
        answer.await.with_context(|| format!("no answer to GET {path} within {ANSWER_DEADLINE:?}"))?
    }

    /// Everything that it has logged.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Where it logs to.
    pub fn log_path(&self) -> PathBuf {
        self.custody.log_path(NAME)
    }

    /// A directory that lives as long as the host does.
    pub fn directory(&self) -> &Path {
        self.custody.directory()
    }

    fn failure(&self, what: &str) -> anyhow::Error {
        anyhow!("the host {what}\n--- end of its log:\n{}", log_tail(&self.log_path()))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- end of the log of the host at {}:\n{}", self.listen, log_tail(&self.log_path()));
        }
    }
}

/// HTTP/1.0: the answer comes in one piece and ends with the connection, so nothing needs to be decoded.
async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream =
        TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without an end of its headers")?;
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    Ok((status.with_context(|| format!("no HTTP status in {head:?}"))?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_taken_apart() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let serve = async {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut request = [0; 256];
            let length = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.0 503 Service Unavailable\r\nx: y\r\n\r\nno lease\n").await.unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        };
        let (request, answer) = tokio::join!(serve, get(address, "/readyz"));
        assert!(request.starts_with("GET /readyz HTTP/1.0\r\n"), "{request}");
        assert_eq!(answer.unwrap(), (503, "no lease\n".to_owned()));
    }

    #[test]
    fn options_become_the_flags_of_run() {
        let options = HostOptions {
            plugins: vec!["a".into(), "b".into()],
            plugin_config_maps: Some("plugins".to_owned()),
            apply_crds: true,
            namespaces: vec!["shop".to_owned()],
            resync: Some(Duration::from_secs(90)),
            lease_namespace: Some("locks".to_owned()),
            arguments: vec!["--more".to_owned()],
            ..HostOptions::new("k")
        };
        let line = options.arguments(SocketAddr::from(([127, 0, 0, 1], 80))).join(" ");
        let expected = "run --kubeconfig k --listen 127.0.0.1:80 --plugins a --plugins b \
                        --plugin-configmaps plugins --namespace shop --resync 90 --lease-namespace locks --apply-crds --more";
        assert_eq!(line, expected);
    }
}
