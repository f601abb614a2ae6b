//! Group, version, kind; and references to one object.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Group, version and kind. The core group is the empty string. Displayed as `Kind.version.group`, as kubectl
/// writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind {
    /// API group, `""` for the core group.
    #[serde(default)]
    pub group: String,
    /// Version, for example `v1`.
    pub version: String,
    /// Kind, for example `StatefulSet`.
    pub kind: String,
}

impl Kind {
    /// A kind from its three parts.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// A kind from an object's `apiVersion` and `kind`.
    pub fn from_api_version(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self::new(group, version, kind)
    }

    /// The text of `apiVersion`: `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether both are one kind, in whatever versions: every object of it has all of them.
    pub fn is_version_of(&self, other: &Self) -> bool {
        self.group == other.group && self.kind == other.kind
    }

    /// True for the core Secret, whose values guests do not see.
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && self.kind == "Secret"
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.version)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// Names one object. Displayed as `Kind.version.group namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reference {
    /// What it is.
    pub kind: Kind,
    /// Its namespace; none for cluster scope, or in a plugin's actions for the namespace of the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`, if that very object is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
