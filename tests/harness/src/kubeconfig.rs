//! Kubeconfig files, written as JSON (which is YAML).

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::pki::Identity;

/// How the user of a kubeconfig proves who it is.
pub(crate) enum Credentials<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

impl Credentials<'_> {
    fn user(&self) -> Value {
        match self {
            Self::Certificate(identity) => {
                json!({"client-certificate": identity.certificate, "client-key": identity.key})
            }
            Self::Token(token) => json!({"token": token}),
        }
    }
}

/// Writes a kubeconfig; certificates stay files that it refers to.
pub(crate) fn write(
    path: &Path,
    server: &str,
    authority: &Path,
    credentials: &Credentials<'_>,
) -> Result<()> {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "test", "user": credentials.user()}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    });
    let text = serde_json::to_string_pretty(&kubeconfig)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// A copy of a kubeconfig, beside it, whose requests go to what listens on this port instead.
pub(crate) fn redirected(of: &Path, server: &str, port: u16) -> Result<PathBuf> {
    let text = fs::read(of).with_context(|| format!("cannot read {}", of.display()))?;
    let mut config: Value = serde_json::from_slice(&text)?;
    config["clusters"][0]["cluster"]["server"] = server.into();
    let directory = of.parent().unwrap_or(Path::new("."));
    let stem = of.file_stem().unwrap_or_default().to_string_lossy();
    let copy = path(directory, &format!("{stem}-through-{port}"));
    fs::write(&copy, config.to_string()).with_context(|| format!("cannot write {}", copy.display()))?;
    Ok(copy)
}

/// A client with the credentials in this file. It belongs to the async runtime that this is called on.
pub(crate) async fn client(path: &Path) -> Result<Client> {
    let kubeconfig =
        Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(|| format!("cannot use {}", path.display()))?;
    // A test wants to see each failure itself, at once.
    config.default_retry = false;
    Client::try_from(config).with_context(|| format!("no client from {}", path.display()))
}

/// The file in `directory` for this user, whatever characters its name has.
pub(crate) fn path(directory: &Path, user: &str) -> PathBuf {
    directory.join(format!("{}.kubeconfig", file_name(user)))
}

/// `system:serviceaccount:shop:till` → `system-serviceaccount-shop-till`
pub(crate) fn file_name(user: &str) -> String {
    user.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect()
}
