//! A server before the API server that answers in its place where a test says so, and hands on all else: what a real
//! API server does too rarely to wait for, done to requests that a real API server would have answered.
//!
//! It speaks TLS and HTTP/2 as the API server does. Whoever asks it asks as an administrator. For faults of the network
//! see [`Proxy`](crate::Proxy), which carries bytes and knows no requests.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt, stream};
use http::{HeaderName, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::Client;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto::ring, pki_types};

use crate::{kubeconfig, pki::Identity};
use pki_types::pem::PemObject as _;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Error>;

/// A request that came, and what became of it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `GET`, `PATCH`, …
    pub method: String,
    /// Path and query.
    pub uri: String,
    /// When it came.
    pub at: Instant,
    /// Status of the answer; none while it is on its way.
    pub status: Option<u16>,
}

impl Asked {
    /// A watch of objects of this plural name.
    pub fn is_watch_of(&self, plural: &str) -> bool {
        self.is_read_of(plural) && self.has("watch=true")
    }

    /// A list, or a page of one.
    pub fn is_list_of(&self, plural: &str) -> bool {
        self.is_read_of(plural) && !self.has("watch=true")
    }

    /// Whether the query has this parameter with this value, as `limit=500`.
    pub fn has(&self, parameter: &str) -> bool {
        let query = self.uri.split_once('?').map_or("", |(_, query)| query);
        query.split('&').any(|one| one == parameter)
    }

    fn is_read_of(&self, plural: &str) -> bool {
        let path = self.uri.split('?').next().unwrap_or_default();
        self.method == "GET" && path.rsplit('/').next() == Some(plural)
    }
}

/// What to answer in the API server's place.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Answer {
    /// A Status of this code, as the API server writes it.
    pub fn status(code: u16, reason: &str) -> Self {
        let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                                        "reason": reason, "message": format!("injected: {reason}")});
        Self {
            status: code,
            headers: vec![("content-type", "application/json".to_owned())],
            body: status.to_string(),
        }
    }

    /// No Status but a text, as what stands before the API server answers.
    pub fn text(code: u16, body: &str) -> Self {
        Self { status: code, headers: Vec::new(), body: body.to_owned() }
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

type Matches = Box<dyn Fn(&Asked) -> bool + Send + Sync>;

struct Rule {
    matches: Matches,
    times: usize,
    answer: Answer,
}

/// What is done to a stream that is open.
enum Blow {
    /// Sends this line after what was sent so far.
    Say(String),
    /// Ends it after what was sent so far.
    End,
    /// Breaks it; what is on its way is lost.
    Break,
    /// Keeps it open and sends nothing any more.
    Hush,
}

struct Stream {
    asked: Asked,
    blows: mpsc::UnboundedSender<Blow>,
}

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    rules: Vec<Rule>,
    streams: Vec<Stream>,
}

/// See the module's documentation. Ends with its drop.
pub struct FaultServer {
    kubeconfig: PathBuf,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

impl FaultServer {
    pub(crate) async fn start(
        upstream: Client,
        original: &Path,
        serving: impl FnOnce(u16) -> Result<Identity>,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let identity = serving(port)?;
        let certificates = pki_types::CertificateDer::pem_file_iter(&identity.certificate)?;
        let key = pki_types::PrivateKeyDer::from_pem_file(&identity.key)?;
        let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates.collect::<Result<_, _>>()?, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let tls = TlsAcceptor::from(Arc::new(tls));
        let kubeconfig = kubeconfig::redirected(original, &format!("https://127.0.0.1:{port}"), port)?;

        let state: Arc<Mutex<State>> = Arc::default();
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(serve(tls.clone(), stream, upstream.clone(), Arc::clone(&shared)));
            }
        });
        Ok(Self { kubeconfig, state, _tasks: tasks })
    }

    /// Leads here, with the rights of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Answers the next requests that match in the API server's place, so many times.
    pub fn answer(
        &self,
        times: usize,
        answer: Answer,
        matches: impl Fn(&Asked) -> bool + Send + Sync + 'static,
    ) {
        self.state().rules.push(Rule { matches: Box::new(matches), times, answer });
    }

    /// Sends a line to those whose open watches match; says how many there are.
    pub fn say(&self, line: &Value, matches: impl Fn(&Asked) -> bool) -> usize {
        self.strike(|| Blow::Say(format!("{line}\n")), matches)
    }

    /// Ends open watches that match, in good order and too early, as an API server does that is stopped.
    pub fn end(&self, matches: impl Fn(&Asked) -> bool) -> usize {
        self.strike(|| Blow::End, matches)
    }

    /// Breaks open watches that match.
    pub fn break_off(&self, matches: impl Fn(&Asked) -> bool) -> usize {
        self.strike(|| Blow::Break, matches)
    }

    /// Lets open watches that match say nothing any more, though they stay open.
    pub fn hush(&self, matches: impl Fn(&Asked) -> bool) -> usize {
        self.strike(|| Blow::Hush, matches)
    }

    /// All requests so far, in the order in which they came.
    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    fn strike(&self, blow: impl Fn() -> Blow, matches: impl Fn(&Asked) -> bool) -> usize {
        let mut state = self.state();
        state.streams.retain(|stream| !stream.blows.is_closed());
        let struck = state.streams.iter().filter(|stream| matches(&stream.asked));
        struck.filter(|stream| stream.blows.send(blow()).is_ok()).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(tls: TlsAcceptor, stream: TcpStream, upstream: Client, state: Arc<Mutex<State>>) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(|request| {
        let (upstream, state) = (upstream.clone(), Arc::clone(&state));
        async move { Ok::<_, Infallible>(respond(request, &upstream, &state).await) }
    });
    // A client that goes away is no fault of this server.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(request: Request<Incoming>, upstream: &Client, state: &Mutex<State>) -> Response<Body> {
    let (index, injected) = {
        let mut state = lock(state);
        let uri = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let method = request.method().to_string();
        let asked = Asked { method, uri, at: Instant::now(), status: None };
        let rule = state.rules.iter_mut().find(|rule| rule.times > 0 && (rule.matches)(&asked));
        let injected = rule.map(|rule| {
            rule.times -= 1;
            rule.answer.clone()
        });
        state.asked.push(asked);
        (state.asked.len() - 1, injected)
    };
    let response = match injected {
        Some(answer) => written(&answer),
        None => hand_on(request, index, upstream, state).await.unwrap_or_else(|error| {
            written(&Answer::text(502, &format!("the API server cannot be reached: {error:#}")))
        }),
    };
    lock(state).asked[index].status = Some(response.status().as_u16());
    response
}

fn written(answer: &Answer) -> Response<Body> {
    let body = Full::new(Bytes::from(answer.body.clone())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::IM_A_TEAPOT);
    for (name, value) in &answer.headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

async fn hand_on(
    request: Request<Incoming>,
    index: usize,
    upstream: &Client,
    state: &Mutex<State>,
) -> Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.context("the request breaks off")?.to_bytes();
    let uri = head.uri.path_and_query().context("no path")?.as_str();
    let mut request = Request::builder().method(head.method).uri(uri);
    for name in [header::ACCEPT, header::CONTENT_TYPE, header::USER_AGENT] {
        if let Some(value) = head.headers.get(&name) {
            request = request.header(name, value);
        }
    }
    let response = upstream.send(request.body(kube::client::Body::from(body.to_vec()))?).await?;
    let (mut head, body) = response.into_parts();
    // The next hop frames the body in its own way.
    for name in [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    head.version = http::Version::default();
    let (blows, struck) = mpsc::unbounded_channel();
    {
        let mut state = lock(state);
        let asked = state.asked[index].clone();
        if asked.has("watch=true") {
            state.streams.push(Stream { asked, blows });
        }
    }
    let frames = TryStreamExt::map_err(BodyStream::new(body), Error::from);
    Ok(Response::from_parts(head, StreamBody::new(stricken(frames, struck)).boxed_unsync()))
}

/// The frames of a body, with what is done to it meanwhile.
fn stricken(
    frames: impl futures::Stream<Item = Result<Frame<Bytes>, Error>> + Send + 'static,
    struck: mpsc::UnboundedReceiver<Blow>,
) -> impl futures::Stream<Item = Result<Frame<Bytes>, Error>> + Send + 'static {
    stream::unfold((Box::pin(frames), struck, true), async |(mut frames, mut struck, mut carries)| {
        loop {
            tokio::select! {
                biased;
                Some(blow) = struck.recv() => match blow {
                    Blow::Say(line) => return Some((Ok(Frame::data(line.into())), (frames, struck, carries))),
                    Blow::End => return None,
                    Blow::Break => return Some((Err("broken off".into()), (frames, struck, false))),
                    Blow::Hush => carries = false,
                },
                frame = frames.next() => match frame {
                    Some(frame) if carries => return Some((frame, (frames, struck, carries))),
                    Some(_) => {}
                    None if carries => return None,
                    None => std::future::pending().await,
                },
            }
        }
    })
}
