//! Makes certificates: an authority for one serving certificate, whose own key is forgotten at once. Nobody can sign
//! another one with it, so a leaked Secret is worth the serving key it holds and no more, and a rotation always brings
//! another authority.

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use std::time::Duration;

/// Clocks of API servers may be behind by this.
const SKEW: Duration = Duration::from_hours(1);

/// An authority and the only certificate that it signed, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    /// Hosts that the certificate is for.
    pub(super) names: Vec<String>,
    /// When it was made, seconds since 1970.
    pub(super) issued: u64,
    /// The authority.
    pub(super) ca: String,
    /// The serving certificate.
    pub(super) certificate: String,
    /// Its key.
    pub(super) key: String,
}

impl std::fmt::Debug for Pair {
    /// Never the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair")
            .field("names", &self.names)
            .field("issued", &self.issued)
            .finish_non_exhaustive()
    }
}

impl Pair {
    /// A new pair that is good for `lifetime` from `now`, seconds since 1970.
    pub(super) fn issue(names: &[String], now: u64, lifetime: Duration) -> Result<Self> {
        let epoch = date_time_ymd(1970, 1, 1);
        let begin = epoch + Duration::from_secs(now).saturating_sub(SKEW);
        let end = epoch + Duration::from_secs(now) + lifetime;

        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority.distinguished_name = named(&format!("pilothouse-webhook-ca-{now}"));
        (authority.not_before, authority.not_after) = (begin, end);
        let authority_key = KeyPair::generate().context("cannot generate a key")?;
        let ca = authority.self_signed(&authority_key).context("cannot sign the authority")?;
        let issuer = Issuer::new(authority, authority_key);

        let mut serving = CertificateParams::new(names).context("a name of the webhooks' address")?;
        serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        serving.distinguished_name = named("pilothouse-webhook");
        (serving.not_before, serving.not_after) = (begin, end);
        let key = KeyPair::generate().context("cannot generate a key")?;
        let certificate = serving.signed_by(&key, &issuer).context("cannot sign the serving certificate")?;
        Ok(Self {
            names: names.to_vec(),
            issued: now,
            ca: ca.pem(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}
