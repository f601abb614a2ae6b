//! A TCP line to the API server that can go bad: carry nothing without saying so, break, or be cut.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How the connections of one generation are. Each change begins another generation.
#[derive(Clone, Copy, PartialEq)]
enum Health {
    Good,
    /// Takes what is sent, gives nothing.
    Silent,
    Broken,
}

/// See the module's documentation. Ends with its drop.
pub(crate) struct Line {
    address: String,
    directory: TempDir,
    accepting: watch::Sender<bool>,
    current: Arc<Mutex<watch::Sender<Health>>>,
    task: AbortHandle,
}

impl Line {
    /// A good line to `https://HOST:PORT`.
    pub(crate) async fn to(url: &str) -> Result<Self> {
        let server = url.strip_prefix("https://").context("no https address")?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("https://{}", listener.local_addr()?);
        let current = Arc::new(Mutex::new(watch::Sender::new(Health::Good)));
        let accepting = watch::Sender::new(true);
        let task = tokio::spawn({
            let (current, accepting) = (Arc::clone(&current), accepting.subscribe());
            async move {
                while let Ok((near, _)) = listener.accept().await {
                    let health = current.lock().unwrap().subscribe();
                    if *accepting.borrow() {
                        tokio::spawn(carry(near, server.clone(), health));
                    }
                }
            }
        });
        Ok(Self { address, directory: tempfile::tempdir()?, accepting, current, task: task.abort_handle() })
    }

    /// A copy of a kubeconfig that leads over this line.
    pub(crate) fn kubeconfig(&self, original: &Path) -> Result<PathBuf> {
        let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(original)?)?;
        kubeconfig["clusters"][0]["cluster"]["server"] = self.address.clone().into();
        let path = self.directory.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string())?;
        Ok(path)
    }

    /// The connections that exist carry nothing any more, and nobody says so. New ones are good.
    pub(crate) fn silence(&self) {
        self.turn(Health::Silent);
    }

    /// The connections that exist break. New ones are good.
    pub(crate) fn reset(&self) {
        self.turn(Health::Broken);
    }

    /// The connections that exist break, and new ones are closed at once.
    pub(crate) fn cut(&self) {
        self.accepting.send_replace(false);
        self.turn(Health::Broken);
    }

    /// New connections are good again.
    pub(crate) fn mend(&self) {
        self.accepting.send_replace(true);
    }

    fn turn(&self, health: Health) {
        let mut current = self.current.lock().unwrap();
        current.send_replace(health);
        let old = std::mem::replace(&mut *current, watch::Sender::new(Health::Good));
        // The old generation keeps its health for as long as it has connections.
        tokio::spawn(async move { old.closed().await });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(near: TcpStream, server: String, health: watch::Receiver<Health>) -> std::io::Result<()> {
    let far = TcpStream::connect(server).await?;
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let there = pump(near_in, far_out, health.clone());
    let back = pump(far_in, near_out, health);
    tokio::try_join!(there, back).map(drop)
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut health: watch::Receiver<Health>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = tokio::select! {
            broken = health.wait_for(|health| *health == Health::Broken) => {
                drop(broken);
                return Err(Error::from(ErrorKind::ConnectionReset));
            }
            read = from.read(&mut buffer) => read?,
        };
        if read == 0 {
            return to.shutdown().await;
        }
        if *health.borrow() == Health::Good {
            to.write_all(&buffer[..read]).await?;
        }
    }
}
