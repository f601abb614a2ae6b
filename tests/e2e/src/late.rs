//! An API server whose watches of one resource lag behind everything else: a proxy that speaks HTTP, as nobody can tell
//! a watch from a write below TLS.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// Chunks of one answer that are on their way; beyond, the API server is not read from.
const CHUNKS_MAX: usize = 256;

/// A proxy that runs, with the rights of its client. Dropping it ends its connections.
#[derive(Debug)]
pub struct LateWatch {
    directory: TempDir,
    _task: JoinSet<()>,
}

impl LateWatch {
    /// Everything that `client` may ask for, and events of the resource with this plural so much later.
    pub async fn start(client: Client, plural: &'static str, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "late",
            "contexts": [{"name": "late", "context": {"cluster": "late"}}],
            "clusters": [{"name": "late", "cluster": {"server": format!("http://{}", listener.local_addr().unwrap())}}],
        });
        std::fs::write(directory.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let client = client.clone();
                connections.spawn(async move {
                    // What fails here fails the request, as a broken connection does.
                    let _ = answer(client, stream, plural, delay).await;
                });
            }
        });
        Self { directory, _task: task }
    }

    /// The credentials for it: none.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }
}

/// The one request of a connection.
async fn answer(client: Client, stream: TcpStream, plural: &str, delay: Duration) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    let request = read(&mut stream).await?;
    let uri = request.uri();
    let late = uri.path().ends_with(&format!("/{plural}"))
        && uri.query().is_some_and(|query| query.contains("watch="));
    let delay = if late { delay } else { Duration::ZERO };

    let response = client.send(request).await?;
    let mut head = format!("HTTP/1.1 {}\r\nconnection: close\r\n", response.status().as_u16());
    for (name, value) in response.headers() {
        if !["connection", "content-length", "transfer-encoding"].contains(&name.as_str()) {
            write!(head, "{name}: {}\r\n", value.to_str()?)?;
        }
    }
    stream.write_all((head + "\r\n").as_bytes()).await?;
    let mut body = response.into_body();
    let (sender, mut under_way) = mpsc::channel(CHUNKS_MAX);
    let read = async move {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            if sender.send((Instant::now() + delay, data)).await.is_err() {
                break;
            }
        }
    };
    let write = async move {
        while let Some((due, data)) = under_way.recv().await {
            sleep_until(due).await;
            stream.write_all(&data).await?;
        }
        stream.shutdown().await
    };
    let ((), written) = tokio::join!(read, write);
    Ok(written?)
}

async fn read(stream: &mut BufReader<TcpStream>) -> anyhow::Result<http::Request<Body>> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(uri)) = (words.next(), words.next()) else { anyhow::bail!("no request") };
    let mut request = http::Request::builder().method(method).uri(uri);
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse()?,
            "host" | "connection" => {}
            _ => request = request.header(name, value),
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(request.body(Body::from(body))?)
}
