//! Version `v1alpha1`, as it once was.

use pilothouse_sdk::prelude::*;

use crate::v1;

/// A website that somebody should find.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Website {
    /// Host and port, for example `shop.example.com:8443`; without a port that of HTTPS.
    #[schemars(
        length(min = 1, max = 259),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[1-9][0-9]{0,4})?$")
    )]
    pub address: String,
}

/// What a `v1` object says that this version has no words for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Unsaid {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
}

impl Unsaid {
    /// Null if there is nothing.
    pub(crate) fn to_json(&self) -> Value {
        if *self == Self::default() { Value::Null } else { json!(self) }
    }

    /// What was kept; somebody may have edited it.
    pub(crate) fn read(kept: Value) -> Self {
        Self::deserialize(kept).unwrap_or_default()
    }
}

impl Website {
    /// A `v1` spec in the words of this version, and what they do not say.
    pub(crate) fn of(spec: v1::Website) -> (Self, Unsaid) {
        let v1::Website { host, port, path, title } = spec;
        let address = match port {
            Some(port) => [&host, ":", &port.to_string()].concat(),
            None => host,
        };
        (Self { address }, Unsaid { path, title })
    }

    /// The same in the words of `v1`.
    pub(crate) fn into_v1(self, unsaid: Unsaid) -> Result<v1::Website, String> {
        let (host, port) = match self.address.split_once(':') {
            None => (self.address, None),
            Some((host, port)) => {
                let port = port.parse().map_err(|_| ["spec.address: `", port, "` is no port"].concat())?;
                (host.to_owned(), Some(port))
            }
        };
        Ok(v1::Website { host, port, path: unsaid.path, title: unsaid.title })
    }
}
