//! The certificates of one control plane, made in this process.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// Signs certificates for servers and users; its own key never leaves the process.
#[derive(Debug)]
pub(crate) struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// Paths of a certificate and its key, both PEM.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Paths of the keys that sign and check service account tokens, both PEM.
#[derive(Clone, Debug)]
pub(crate) struct TokenKeys {
    pub(crate) private: PathBuf,
    pub(crate) public: PathBuf,
}

impl Authority {
    /// Makes the authority and keeps its certificate, and those that it will sign, in `directory`.
    pub(crate) fn create(directory: PathBuf) -> Result<Self> {
        fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let key = KeyPair::generate().context("cannot generate a key")?;
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, "pilothouse-harness");
        let certificate = parameters.self_signed(&key).context("cannot sign the authority's certificate")?;
        write(&directory.join("ca.crt"), &certificate.pem())?;
        Ok(Self { directory, issuer: Issuer::new(parameters, key) })
    }

    /// The authority's own certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// A serving certificate for these DNS names and IP addresses.
    pub(crate) fn server(&self, name: &str, addresses: &[&str]) -> Result<Identity> {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let parameters = CertificateParams::new(addresses).context("an address of the server")?;
        self.sign(name, name, None, ExtendedKeyUsagePurpose::ServerAuth, parameters)
    }

    /// A client certificate: Kubernetes takes the common name for the user and the organization for its group
    /// (rcgen writes one organization at most).
    pub(crate) fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<Identity> {
        self.sign(file, user, group, ExtendedKeyUsagePurpose::ClientAuth, CertificateParams::default())
    }

    /// A key pair without a certificate, to sign and check service account tokens with.
    pub(crate) fn token_keys(&self) -> Result<TokenKeys> {
        let pair = KeyPair::generate().context("cannot generate a key")?;
        let private = self.directory.join("service-account.key");
        let public = self.directory.join("service-account.pub");
        write(&private, &pair.serialize_pem())?;
        write(&public, &pair.public_key_pem())?;
        Ok(TokenKeys { private, public })
    }

    fn sign(
        &self,
        file: &str,
        common_name: &str,
        organization: Option<&str>,
        usage: ExtendedKeyUsagePurpose,
        mut parameters: CertificateParams,
    ) -> Result<Identity> {
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, common_name);
        if let Some(organization) = organization {
            parameters.distinguished_name.push(DnType::OrganizationName, organization);
        }
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![usage];
        let key = KeyPair::generate().context("cannot generate a key")?;
        let certificate = parameters
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("cannot sign the certificate of {common_name}"))?;
        let identity = Identity {
            certificate: self.directory.join(format!("{file}.crt")),
            key: self.directory.join(format!("{file}.key")),
        };
        write(&identity.certificate, &certificate.pem())?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }
}

fn write(path: &Path, pem: &str) -> Result<()> {
    fs::write(path, pem).with_context(|| format!("cannot write {}", path.display()))
}
