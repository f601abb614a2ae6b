//! Sends the exporter's requests. The exporter has a thread of its own, without a runtime; the requests are tasks of the
//! host's.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use tokio::runtime::Handle;

/// One batch; the specification's own default.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(10);
/// Of an answer: it says no more than what was refused.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// See the module.
pub(crate) struct RuntimeClient {
    runtime: Handle,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl RuntimeClient {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, client: Client::builder(TokioExecutor::new()).build_http() }
    }
}

impl fmt::Debug for RuntimeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeClient").finish_non_exhaustive()
    }
}

type Answered<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

// As `async_trait` writes it out.
impl HttpClient for RuntimeClient {
    fn send_bytes<'life0, 'async_trait>(&'life0 self, request: Request<Bytes>) -> Answered<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let exchange = async {
                let answer = client.request(request.map(Full::new)).await?;
                let (parts, body) = answer.into_parts();
                let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
                Ok::<_, HttpError>(Response::from_parts(parts, body))
            };
            tokio::time::timeout(EXPORT_TIME_MAX, exchange).await?
        });
        Box::pin(async move { sent.await? })
    }
}
