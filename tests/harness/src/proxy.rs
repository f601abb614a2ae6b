//! A TCP proxy in front of an API server: the network between one client and the server, and everything that may
//! become of it.
//!
//! What travels is never looked at (it is TLS); a fault is one of the line. Connections that exist and those that come
//! are treated alike, with one exception that a real network makes as well: a connection that has lost a byte stays
//! silent for ever, also when the line is good again, as what follows would not be the stream that was sent.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::kubeconfig;

/// One read; larger than a TLS record.
const CHUNK_BYTES: usize = 32 << 10;
/// Chunks of one direction that are on their way. Beyond, the sender is not read from, as by a full network.
const CHUNKS_MAX: usize = 256;

/// What the line does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Carries them.
    Good,
    /// Carries each of them so much later, in both directions. Nothing is lost, also of a connection whose sender has
    /// given up meanwhile.
    Slow(Duration),
    /// Takes them, acknowledges them and says nothing: a cable that is cut behind a switch.
    Silent,
    /// Resets connections, new ones too.
    Reset,
}

/// A proxy that runs. Dropping it ends its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    line: watch::Sender<Line>,
    _task: JoinSet<()>,
}

impl Proxy {
    /// Listens on a loopback port of its own, for connections to `upstream`. Belongs to the async runtime that this is
    /// called on.
    pub async fn start(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
        let address = listener.local_addr()?;
        let (line, state) = watch::channel(Line::Good);
        let mut task = JoinSet::new();
        task.spawn(accept(listener, upstream, state));
        Ok(Self { address, line, _task: task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the line is like this.
    pub fn set(&self, line: Line) {
        self.line.send_replace(line);
    }

    /// A copy of a kubeconfig, beside it, whose requests come through this proxy.
    pub fn kubeconfig(&self, of: &Path) -> Result<PathBuf> {
        kubeconfig::redirected(of, &format!("https://{}", self.address), self.address.port())
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, line: watch::Receiver<Line>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((client, _)) = listener.accept() => {
                connections.spawn(carry(client, upstream, line.clone()));
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// One connection, until it ends or is reset. An error ends it like anything else.
async fn carry(client: TcpStream, upstream: SocketAddr, mut line: watch::Receiver<Line>) {
    let _ = client.set_nodelay(true);
    let reset = {
        let mut line = line.clone();
        async move {
            let _ = line.wait_for(|line| *line == Line::Reset).await;
        }
    };
    // A connection that is made while the line is silent gets no answer until it is good again.
    let server = async {
        line.wait_for(|line| *line != Line::Silent).await.ok()?;
        let server = TcpStream::connect(upstream).await.ok()?;
        let _ = server.set_nodelay(true);
        Some(server)
    };
    tokio::pin!(reset);
    let server = tokio::select! {
        biased;
        () = &mut reset => None,
        server = server => server,
    };
    let Some(server) = server else {
        let _ = client.set_zero_linger();
        return;
    };
    // Dropped unread or unsent, both ends are reset.
    let (_, _) = (client.set_zero_linger(), server.set_zero_linger());
    let ((client_in, client_out), (server_in, server_out)) = (split(client), split(server));
    let hole = Arc::new(watch::channel(false).0);
    let both = async {
        tokio::join!(
            pump(client_in, server_out, line.clone(), Arc::clone(&hole)),
            pump(server_in, client_out, line.clone(), Arc::clone(&hole)),
        );
    };
    tokio::select! {
        () = &mut reset => {}
        () = both => {}
    }
}

/// One direction: as long as there is something to carry, and for ever once something was lost. The end of the stream
/// travels like its bytes.
async fn pump(
    mut from: ReadHalf<TcpStream>,
    mut to: WriteHalf<TcpStream>,
    line: watch::Receiver<Line>,
    hole: Arc<watch::Sender<bool>>,
) {
    let (sender, mut under_way) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let (reading, read_hole) = (line.clone(), Arc::clone(&hole));
    let read = async move {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let length = from.read(&mut buffer).await.unwrap_or(0);
            let delay = match *reading.borrow() {
                Line::Slow(delay) => delay,
                _ => Duration::ZERO,
            };
            let chunk = (Instant::now() + delay, buffer[..length].to_vec());
            if *reading.borrow() == Line::Silent || *read_hole.borrow() {
                read_hole.send_replace(true);
            } else if sender.send(chunk).await.is_err() {
                break;
            }
            if length == 0 {
                break;
            }
        }
    };
    let write = async move {
        while let Some((due, chunk)) = under_way.recv().await {
            sleep_until(due).await;
            if *line.borrow() == Line::Silent || *hole.borrow() {
                hole.send_replace(true);
                continue;
            }
            let done = if chunk.is_empty() { to.shutdown().await } else { to.write_all(&chunk).await };
            if done.is_err() {
                break;
            }
        }
        if *hole.borrow() {
            // Neither end hears of the other again; each finds out by itself.
            std::future::pending::<()>().await;
        }
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// A server that says everything back.
    async fn echo() -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    let (mut input, mut output) = split(stream);
                    let _ = tokio::io::copy(&mut input, &mut output).await;
                });
            }
        });
        (address, tasks)
    }

    async fn says(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
        stream.write_all(text.as_bytes()).await?;
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer).await?;
        assert_eq!(answer, text.as_bytes());
        Ok(())
    }

    const SILENCE: Duration = Duration::from_millis(200);
    const LATE: Duration = Duration::from_millis(150);

    #[tokio::test]
    async fn a_line_is_good_slow_silent_and_reset() {
        let (server, _server) = echo().await;
        let proxy = Proxy::start(server).await.unwrap();
        let connect = || async { TcpStream::connect(proxy.address()).await.unwrap() };
        let mut first = connect().await;
        says(&mut first, "good").await.unwrap();

        proxy.set(Line::Slow(LATE));
        let begun = Instant::now();
        says(&mut first, "slow").await.unwrap();
        assert!(begun.elapsed() >= 2 * LATE, "there and back");

        proxy.set(Line::Silent);
        let mut second = connect().await;
        for stream in [&mut first, &mut second] {
            assert!(timeout(SILENCE, says(stream, "silent")).await.is_err());
        }
        proxy.set(Line::Good);
        assert!(timeout(SILENCE, says(&mut first, "hole")).await.is_err(), "a stream with a hole");
        let mut third = connect().await;
        says(&mut third, "good again").await.unwrap();

        proxy.set(Line::Reset);
        assert!(third.read_u8().await.is_err());
        assert!(says(&mut connect().await, "reset").await.is_err());
        proxy.set(Line::Good);
        says(&mut connect().await, "good at last").await.unwrap();
    }

    #[tokio::test]
    async fn what_was_sent_before_the_end_arrives_before_it() {
        let (server, _server) = echo().await;
        let proxy = Proxy::start(server).await.unwrap();
        proxy.set(Line::Slow(LATE));
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream.write_all(b"last words").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "last words");
    }
}
