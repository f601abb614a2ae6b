//! Bytes of plugins: from one file, from watched directories, from the data of a ConfigMap.
//!
//! What comes out is an [`Artifact`]: an uncompressed WebAssembly binary with its digest and its settings, bounded
//! in size and complete as far as its framing tells. This crate knows neither the API server (it is handed the data
//! of a ConfigMap) nor the sandbox (whether the binary is a plugin at all is found out there).

mod artifact;
mod config_map;
mod error;
mod file_name;
mod scan;
mod unpack;
mod watch;

pub use artifact::{Artifact, Origin, load_file};
pub use config_map::from_config_map;
pub use error::FetchError;
pub use file_name::stem_of;
pub use scan::Change;
pub use unpack::{BYTES_MAX, Packing};
pub use watch::watch_directories;
