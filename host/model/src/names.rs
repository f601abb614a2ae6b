//! Newtypes for the names that travel through the host, and the labels and annotations that it writes.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Label on each child: its value is the plugin's name. Child watches select it.
pub const MANAGED_LABEL: &str = "pilothouse.dev/managed";
/// Label on each child that no owner reference can tie to its primary: the primary's UID.
pub const OWNER_UID_LABEL: &str = "pilothouse.dev/owner-uid";
/// Annotation on each such child: its primary as `Kind.group/namespace/name`.
pub const OWNER_ANNOTATION: &str = "pilothouse.dev/owner";
/// Finalizer on primaries that have such children, unless the plugin has one of its own.
pub const CLEANUP_FINALIZER: &str = "pilothouse.dev/cleanup";
/// Labels and annotations that begin with this are the host's to write.
pub const HOST_PREFIX: &str = "pilothouse.dev/";
/// Label on ConfigMaps that carry a plugin: its value is the plugin's name.
pub const PLUGIN_LABEL: &str = "pilothouse.dev/plugin";
/// Annotation on a Secret as a guest sees it: its values are blanked.
pub const BLANKED_ANNOTATION: &str = "pilothouse.dev/blanked";
/// Annotation on a primary: with any value but `false` the host leaves it alone.
pub const PAUSED_ANNOTATION: &str = "pilothouse.dev/paused";
/// Annotation on a primary: `plan` shows what would be done and does nothing until it is approved.
pub const MODE_ANNOTATION: &str = "pilothouse.dev/mode";
/// Annotation on a primary, the host's: what it would do, and the hash of that.
pub const PLAN_ANNOTATION: &str = "pilothouse.dev/plan";
/// Annotation on a primary: the hash of the plan that may be carried out.
pub const APPROVE_ANNOTATION: &str = "pilothouse.dev/approve";

/// Name of a plugin: `manifest.name`, a DNS label of at most 53 characters, so that names made from it (field
/// manager, label value, Lease) stay below Kubernetes' limit of 63.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PluginName(Arc<str>);

impl PluginName {
    /// Longest name, in bytes.
    pub const BYTES_MAX: usize = 53;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The field manager under which this plugin's children are applied.
    pub fn field_manager(&self) -> String {
        field_manager(&self.0)
    }
}

/// The field manager of the plugin with this name.
pub fn field_manager(plugin: &str) -> String {
    format!("pilothouse-{plugin}")
}

/// A text that is no plugin name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a plugin name: use lower case letters, digits and `-`, beginning with a letter and ending with a letter or digit, at most 53 characters"
)]
pub struct PluginNameError(String);

impl FromStr for PluginName {
    type Err = PluginNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.as_bytes();
        let right = !bytes.is_empty()
            && bytes.len() <= Self::BYTES_MAX
            && bytes[0].is_ascii_lowercase()
            && bytes[bytes.len() - 1] != b'-'
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
        if right { Ok(Self(text.into())) } else { Err(PluginNameError(text.to_owned())) }
    }
}

impl TryFrom<String> for PluginName {
    type Error = PluginNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PluginName> for String {
    fn from(name: PluginName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// SHA-256 of a component's bytes, uncompressed. Displayed as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hexadecimal digits alone.
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which version of a plugin is meant: counts up each time that its name is loaded in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Namespace and name of an object of a kind that the context knows; displayed as `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// None for cluster-scoped kinds.
    pub namespace: Option<Arc<str>>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl Key {
    /// A key of a namespaced object.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// A key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { namespace: None, name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_names_are_dns_labels() {
        for right in ["a", "pod-replica", "x9", &"a".repeat(53)] {
            assert_eq!(right.parse::<PluginName>().unwrap().as_str(), right);
        }
        for wrong in ["", "A", "-a", "a-", "9a", "a_b", "a.b", "ä", &"a".repeat(54)] {
            assert!(wrong.parse::<PluginName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn digest_is_sha256() {
        // FIPS 180-2, the empty message.
        assert_eq!(
            Digest::of(b"").to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
