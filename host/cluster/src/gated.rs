//! A TCP connection whose bytes leave only while a gate is open; see [`crate::lease`].

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use tower::{BoxError, Service, ServiceExt as _};

use crate::lease::Gate;

type Tcp = hyper_util::rt::TokioIo<tokio::net::TcpStream>;

/// Makes such connections.
#[derive(Clone)]
pub(crate) struct GatedConnector {
    tcp: HttpConnector,
    gate: Gate,
}

impl GatedConnector {
    pub(crate) fn new(tcp: HttpConnector, gate: Gate) -> Self {
        Self { tcp, gate }
    }
}

impl Service<Uri> for GatedConnector {
    type Response = Gated<Tcp>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (tcp, gate) = (self.tcp.clone(), self.gate.clone());
        Box::pin(async move { Ok(Gated { stream: tcp.oneshot(uri).await?, gate }) })
    }
}

/// A connection that breaks rather than send anything while the gate is shut. What TLS has not been able to send cannot
/// be taken back, so there is no other end.
pub(crate) struct Gated<T> {
    stream: T,
    gate: Gate,
}

impl<T: Unpin> Gated<T> {
    fn checked(self: Pin<&mut Self>) -> io::Result<Pin<&mut T>> {
        let this = self.get_mut();
        if this.gate.is_open() {
            Ok(Pin::new(&mut this.stream))
        } else {
            Err(io::Error::other("this host does not hold the Lease long enough to write"))
        }
    }

    fn unchecked(self: Pin<&mut Self>) -> Pin<&mut T> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl<T: Write + Unpin> Write for Gated<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.checked()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.checked()?.poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unchecked().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unchecked().poll_shutdown(cx)
    }
}

impl<T: Read + Unpin> Read for Gated<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.unchecked().poll_read(cx, buffer)
    }
}

impl<T: Connection> Connection for Gated<T> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}
