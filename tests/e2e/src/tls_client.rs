//! A client of a host's webhooks that is not the API server, and need not be as polite.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

/// Who believes the authorities of a webhook configuration.
#[derive(Clone)]
pub struct TlsClient {
    connector: TlsConnector,
    port: u16,
}

impl TlsClient {
    /// A client of the host at this loopback port, with the first `caBundle` of this configuration.
    pub fn new(configuration: &Value, port: u16) -> Self {
        let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&STANDARD.decode(bundle).unwrap()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Self { connector: TlsConnector::from(Arc::new(config)), port }
    }

    /// A connection.
    pub async fn connect(&self) -> TlsStream<TcpStream> {
        self.try_connect().await.unwrap()
    }

    /// A connection, if the host's certificate is believed.
    pub async fn try_connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        self.connector.connect(name, stream).await
    }

    /// One request, and the whole answer: status and body.
    pub async fn ask(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> (u16, String) {
        let mut stream = self.connect().await;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // Who is refused by the head alone need not read the rest.
        let _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
        (status, body)
    }
}
