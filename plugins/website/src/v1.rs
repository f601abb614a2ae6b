//! Version `v1`, in which objects are stored.

use pilothouse_sdk::prelude::*;

/// A website that somebody should find.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Website {
    /// Name of the host, for example `shop.example.com`.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub host: String,
    /// Port; that of HTTPS if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Path on the host, `/` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^/"))]
    pub path: Option<String>,
    /// Text of the link; the name of the resource if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub title: Option<String>,
}

impl Website {
    /// Where the link leads.
    pub fn url(&self) -> String {
        let port = self.port.filter(|port| *port != 443).map(|port| [":", &port.to_string()].concat());
        ["https://", &self.host, &port.unwrap_or_default(), self.path.as_deref().unwrap_or("/")].concat()
    }
}
