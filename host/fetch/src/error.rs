//! Why an artifact could not be had. Each text names the file or key and what would be right.

use std::io;
use std::path::PathBuf;

use crate::artifact::Origin;
use crate::unpack::UnpackError;

/// A file or ConfigMap that yields no artifact.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// It could not be read.
    #[error("{path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A directory, device, pipe or socket.
    #[error("{path} is not a regular file: a WebAssembly component would be right", path = path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// A symbolic link that leads nowhere.
    #[error("{path} is a symbolic link to `{target}`, which does not exist", path = path.display(), target = target.display())]
    Dangling {
        /// The link.
        path: PathBuf,
        /// Where it points.
        target: PathBuf,
    },
    /// The file is larger than any plugin.
    #[error("{path} has {bytes} bytes: at most {max} would be right", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The bytes are no complete WebAssembly binary.
    #[error("{origin}: {error}")]
    Unpack {
        /// Where they came from.
        origin: Origin,
        /// What is wrong with them.
        error: UnpackError,
    },
    /// The settings beside it cannot be used.
    #[error("{settings}: {problem}")]
    Settings {
        /// The settings file or key.
        settings: String,
        /// What is wrong in it, by key or line.
        problem: String,
    },
    /// Another file of the same name comes first.
    #[error("{path} is not used: {winner} has the same name and comes first; remove one of them",
            path = path.display(), winner = winner.display())]
    Duplicate {
        /// The file that is not used.
        path: PathBuf,
        /// The one that is.
        winner: PathBuf,
    },
    /// The ConfigMap's keys or label are not as they should be.
    #[error("ConfigMap {config_map}: {problem}")]
    ConfigMap {
        /// `namespace/name`
        config_map: String,
        /// Which key or label, and what would be right.
        problem: String,
    },
}

impl FetchError {
    /// One word for conditions and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } | Self::Dangling { .. } => "Unreadable",
            Self::NotAFile { .. } | Self::ConfigMap { .. } => "NotAPlugin",
            Self::TooLarge { .. } => "TooLarge",
            Self::Unpack { error, .. } => error.reason(),
            Self::Settings { .. } => "InvalidSettings",
            Self::Duplicate { .. } => "Duplicate",
        }
    }

    /// Whether the next look may find something else although no attribute of the file changed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Dangling { .. })
    }
}
