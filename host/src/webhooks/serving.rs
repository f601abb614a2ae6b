//! The certificate that the listener shows. Changed while connections go on: each handshake takes the newest.

use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context as _, Result};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

/// What is shown. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Serving {
    shown: Arc<Shown>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug, Default)]
struct Shown(RwLock<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Shown {
    /// A handshake before the first certificate fails.
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Serving {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self { shown: Arc::default(), provider: Arc::new(ring::default_provider()) }
    }

    /// TLS 1.2 and 1.3, HTTP/1.1: the API server's webhook client speaks no other, so that it spreads over replicas.
    pub(super) fn tls(&self) -> Result<Arc<ServerConfig>> {
        let config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .context("TLS versions")?;
        let shown: Arc<Shown> = Arc::clone(&self.shown);
        let mut config = config.with_no_client_auth().with_cert_resolver(shown);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Shows this certificate from now on, PEM. One that cannot be used leaves the present one.
    pub(super) fn show(&self, certificate: &str, key: &str) -> Result<()> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .context("the certificate is no PEM")?;
        anyhow::ensure!(!chain.is_empty(), "there is no certificate in it");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("the key is no PEM")?;
        let certified = CertifiedKey::from_der(chain, key, &self.provider).context("certificate and key")?;
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certified));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::pair::Pair;
    use super::*;

    #[test]
    fn a_pair_of_our_making_is_shown_and_one_that_does_not_fit_is_refused() {
        let serving = Serving::new();
        let issue = |name: &str| {
            Pair::issue(&[name.to_owned()], 1_000_000, std::time::Duration::from_mins(1)).unwrap()
        };
        let (one, other) = (issue("a.b.svc"), issue("127.0.0.1"));
        assert!(one.ca != other.ca && serving.tls().is_ok());
        serving.show(&one.certificate, &one.key).unwrap();
        let shown = || serving.shown.0.read().unwrap().clone().unwrap();
        let before = shown().cert.clone();
        for (certificate, key) in
            [(&*one.certificate, &*other.key), ("", &*one.key), (&*one.certificate, "junk")]
        {
            serving.show(certificate, key).unwrap_err();
            assert_eq!(shown().cert, before);
        }
        serving.show(&other.certificate, &other.key).unwrap();
        assert_ne!(shown().cert, before);
        assert!(!format!("{one:?}").contains("PRIVATE"));
    }
}
