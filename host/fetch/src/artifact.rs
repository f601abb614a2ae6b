//! An artifact: one plugin's binary and settings, and where they came from.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pilothouse_model::names::Digest;
use pilothouse_model::settings::Settings;

use crate::error::FetchError;
use crate::file_name::stem_of;
use crate::unpack::{BYTES_MAX, Packing, packing, unpack};

/// Largest settings file, bytes: as much as a ConfigMap holds.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// Where a plugin comes from. Displayed as the path of the file, or as `ConfigMap namespace/name, key KEY`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// A key of a ConfigMap.
    ConfigMap {
        /// Namespace of the ConfigMap.
        namespace: String,
        /// Its name.
        name: String,
        /// Key in its `binaryData`.
        key: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::ConfigMap { namespace, name, key } => write!(f, "ConfigMap {namespace}/{name}, key {key}"),
        }
    }
}

/// The bytes of one plugin with its settings.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Where it came from.
    pub origin: Origin,
    /// NAME of `NAME.wasm`. Not the plugin's identity: that is the name in its manifest.
    pub stem: String,
    /// The binary, uncompressed. A core module or a component; only the sandbox tells.
    pub wasm: Arc<[u8]>,
    /// Digest of `wasm`.
    pub digest: Digest,
    /// How it lay there.
    pub packing: Packing,
    /// Bytes as it lay there.
    pub compressed_bytes: u64,
    /// Settings from `NAME.yaml`, defaults if there is none.
    pub settings: Settings,
    /// Their text, for which the identity of settings is compared; empty if there is none.
    pub settings_text: String,
}

impl Artifact {
    /// `settings` is the text and what to call it in an error.
    pub(crate) fn assemble(
        origin: Origin,
        stem: String,
        bytes: Vec<u8>,
        settings: Option<(String, String)>,
    ) -> Result<Self, FetchError> {
        let compressed_bytes = bytes.len() as u64;
        let packing = packing(&bytes);
        let wasm = unpack(bytes).map_err(|error| FetchError::Unpack { origin: origin.clone(), error })?;
        let (settings_text, called) = settings.unwrap_or_default();
        let settings = Settings::parse(&settings_text)
            .map_err(|error| FetchError::Settings { settings: called, problem: error.to_string() })?;
        let digest = Digest::of(&wasm);
        Ok(Self {
            origin,
            stem,
            wasm: wasm.into(),
            digest,
            packing,
            compressed_bytes,
            settings,
            settings_text,
        })
    }
}

/// Reads one plugin and the settings beside it: `NAME.yaml` for `NAME.wasm`, `NAME.wasm.gz` or `NAME.wasm.zst`.
/// Blocks on file IO.
pub fn load_file(path: &Path) -> Result<Artifact, FetchError> {
    let stem = stem_of(path);
    let bytes = read_bounded(path, BYTES_MAX)?;
    let settings_path = settings_path(path, &stem);
    let settings = match read_bounded(&settings_path, SETTINGS_BYTES_MAX) {
        Ok(bytes) => Some((settings_text(bytes, &settings_path)?, settings_path.display().to_string())),
        Err(FetchError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Artifact::assemble(Origin::File(path.to_owned()), stem, bytes, settings)
}

/// Where the settings of the plugin at `path` would lie.
pub(crate) fn settings_path(path: &Path, stem: &str) -> PathBuf {
    path.with_file_name(format!("{stem}.yaml"))
}

fn settings_text(bytes: Vec<u8>, path: &Path) -> Result<String, FetchError> {
    String::from_utf8(bytes).map_err(|error| FetchError::Settings {
        settings: path.display().to_string(),
        problem: format!("is not UTF-8 text: {error}"),
    })
}

fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>, FetchError> {
    let read_error = |source| FetchError::Read { path: path.to_owned(), source };
    // Asked before it is opened: opening a pipe would wait for a writer.
    if !path.metadata().map_err(read_error)?.is_file() {
        return Err(FetchError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(read_error)?;
    let bytes = file.metadata().map_err(read_error)?.len();
    if bytes > bytes_max {
        return Err(FetchError::TooLarge { path: path.to_owned(), bytes, max: bytes_max });
    }
    let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    file.take(bytes_max + 1).read_to_end(&mut content).map_err(read_error)?;
    // It may have grown since.
    if content.len() as u64 > bytes_max {
        return Err(FetchError::TooLarge {
            path: path.to_owned(),
            bytes: content.len() as u64,
            max: bytes_max,
        });
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const EMPTY_COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn a_file_is_read_with_the_settings_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("web.wasm.zst");
        fs::write(&path, zstd::encode_all(EMPTY_COMPONENT, 3).unwrap()).unwrap();
        let artifact = load_file(&path).unwrap();
        assert_eq!((artifact.stem.as_str(), &*artifact.wasm), ("web", EMPTY_COMPONENT));
        assert_eq!(artifact.digest, Digest::of(EMPTY_COMPONENT));
        assert_eq!((artifact.packing, artifact.settings), (Packing::Zstd, Settings::default()));

        fs::write(directory.path().join("web.yaml"), "concurrency: 3\n").unwrap();
        let artifact = load_file(&path).unwrap();
        assert_eq!((artifact.settings.concurrency, artifact.settings_text.as_str()), (3, "concurrency: 3\n"));
    }

    #[test]
    fn errors_name_the_file_and_what_would_be_right() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("web.wasm");
        let error = || load_file(&path).unwrap_err();

        assert!(error().to_string().starts_with(&format!("{}: ", path.display())), "{}", error());
        fs::write(&path, b"\x7fELF").unwrap();
        assert_eq!(error().reason(), "NotAPlugin");
        assert!(error().to_string().contains("web.wasm: is no WebAssembly binary"), "{}", error());

        fs::write(&path, EMPTY_COMPONENT).unwrap();
        fs::write(directory.path().join("web.yaml"), "concurency: 3\n").unwrap();
        assert_eq!(error().reason(), "InvalidSettings");
        assert!(
            error().to_string().contains("web.yaml") && error().to_string().contains("concurency"),
            "{}",
            error()
        );

        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(
            error().to_string().ends_with("is not a regular file: a WebAssembly component would be right")
        );

        let large = directory.path().join("large.wasm");
        File::create(&large).unwrap().set_len(BYTES_MAX + 1).unwrap();
        let error = load_file(&large).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{} has 67108865 bytes: at most 67108864 would be right", large.display())
        );
    }
}
