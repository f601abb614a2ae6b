//! `pilothouse package`: a plugin and its settings as a ConfigMap.

use std::io::Write;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pilothouse_fetch::Artifact;
use pilothouse_model::names::{PLUGIN_LABEL, PluginName};
use serde_json::{Value, json};

use crate::cli::exit::{EXIT_CODES, Exit};
use crate::cli::output::{self, Format};
use crate::cli::plugin;
use crate::cli::run::check_namespace;

/// Values of a ConfigMap together, bytes: what the API server's validation allows (`MaxSecretSize`). It counts the
/// values, decoded, and not the keys.
const CONFIG_MAP_BYTES_MAX: usize = 1 << 20;

/// zstd's highest level that does not need more memory to decompress.
const ZSTD_LEVEL: i32 = 19;

/// Print a plugin as a ConfigMap, for `kubectl apply --server-side -f -`
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
Apply it on the server's side: client-side apply would copy the binary into an annotation.
  pilothouse package web.wasm --configmap web-plugin -n ops | kubectl apply --server-side -f -

{EXIT_CODES}"))]
pub(crate) struct PackageArgs {
    /// Component: NAME.wasm, gzip'd or zstd'd or not; settings in NAME.yaml beside it are packed too
    plugin: PathBuf,
    /// Name of the ConfigMap
    #[arg(long, value_name = "NAME")]
    configmap: String,
    /// Its namespace [default: as kubectl decides]
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
}

pub(crate) fn main(args: &PackageArgs) -> Result<(), Exit> {
    check_config_map_name(&args.configmap)?;
    if let Some(namespace) = &args.namespace {
        check_namespace("--namespace", namespace)?;
    }
    let plugin = plugin::load(&plugin::sandbox()?, &args.plugin)?;
    let config_map = config_map(args, &plugin.artifact, &plugin.manifest().name)?;
    output::print(&[config_map], Format::Yaml)
}

fn config_map(args: &PackageArgs, artifact: &Artifact, name: &PluginName) -> Result<Value, Exit> {
    let (suffix, packed) = smallest(&artifact.wasm)
        .map_err(|error| Exit::failed(format!("{}: cannot be compressed: {error}", args.plugin.display())))?;
    let bytes = packed.len() + artifact.settings_text.len();
    if bytes > CONFIG_MAP_BYTES_MAX {
        return Err(Exit::bad_input(format!(
            "{}: has {bytes} bytes compressed, a ConfigMap holds {CONFIG_MAP_BYTES_MAX}: give the host the file in a \
             directory (`run --plugins DIR`: an image volume, a volume claim, a layer of the host's image), or as an \
             OCI artifact",
            args.plugin.display()
        )));
    }
    let mut metadata = json!({"name": args.configmap, "labels": {PLUGIN_LABEL: name}});
    if let Some(namespace) = &args.namespace {
        metadata["namespace"] = json!(namespace);
    }
    let mut config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
        "binaryData": {format!("{name}.wasm{suffix}"): STANDARD.encode(packed)},
    });
    if !artifact.settings_text.is_empty() {
        config_map["data"] = json!({format!("{name}.yaml"): artifact.settings_text});
    }
    Ok(config_map)
}

/// The smaller of zstd and gzip. Both are the same on each run, so that a generated manifest changes only with the
/// plugin.
fn smallest(wasm: &[u8]) -> std::io::Result<(&'static str, Vec<u8>)> {
    let zstd = zstd::bulk::compress(wasm, ZSTD_LEVEL)?;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(wasm)?;
    let gzip = encoder.finish()?;
    Ok(if gzip.len() < zstd.len() { (".gz", gzip) } else { (".zst", zstd) })
}

/// A DNS subdomain.
fn check_config_map_name(name: &str) -> Result<(), Exit> {
    let right = name.len() <= 253
        && name.split('.').all(|label| {
            let bytes = label.as_bytes();
            !bytes.is_empty()
                && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
                && bytes[0] != b'-'
                && bytes[bytes.len() - 1] != b'-'
        });
    if right {
        Ok(())
    } else {
        Err(Exit::bad_input(format!("--configmap: `{name}` is no name of a ConfigMap")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pilothouse_fetch::{from_config_map, load_file};

    use super::*;

    fn args(plugin: PathBuf) -> PackageArgs {
        PackageArgs { plugin, configmap: "web-plugin".to_owned(), namespace: Some("ops".to_owned()) }
    }

    /// A binary with one section of `payload`.
    fn artifact(payload: &[u8], settings: &str) -> (tempfile::TempDir, Artifact) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file_name.wasm");
        let mut wasm = b"\0asm\x0d\0\x01\0\0".to_vec();
        let mut size = u32::try_from(payload.len() + 2).unwrap();
        while size >= 0x80 {
            wasm.push(u8::try_from(size & 0x7f).unwrap() | 0x80);
            size >>= 7;
        }
        wasm.push(u8::try_from(size).unwrap());
        wasm.extend_from_slice(b"\x01x");
        wasm.extend_from_slice(payload);
        std::fs::write(&path, &wasm).unwrap();
        if !settings.is_empty() {
            std::fs::write(path.with_extension("yaml"), settings).unwrap();
        }
        let artifact = load_file(&path).unwrap();
        (directory, artifact)
    }

    #[test]
    fn what_is_packed_is_what_the_host_reads_back() {
        let (_directory, artifact) = artifact(&[7; 5000], "config: {a: 1}\n");
        let config_map =
            config_map(&args("file_name.wasm".into()), &artifact, &"web".parse().unwrap()).unwrap();
        assert_eq!(config_map["metadata"]["namespace"], "ops");
        let label = config_map["metadata"]["labels"][PLUGIN_LABEL].as_str().unwrap();
        let binary_data: BTreeMap<String, Vec<u8>> = config_map["binaryData"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| (key.clone(), STANDARD.decode(value.as_str().unwrap()).unwrap()))
            .collect();
        let data: BTreeMap<String, String> = serde_json::from_value(config_map["data"].clone()).unwrap();
        let read = from_config_map("ops", "web-plugin", label, &binary_data, &data).unwrap();
        assert_eq!((read.digest, read.settings), (artifact.digest, artifact.settings.clone()));
        assert!(read.compressed_bytes < 200, "{}", read.compressed_bytes);
    }

    #[test]
    fn what_no_config_map_can_hold_is_refused_with_the_other_ways() {
        // Does not compress: xorshift64.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            for shift in [(13, true), (7, false), (17, true)] {
                state ^= if shift.1 { state << shift.0 } else { state >> shift.0 };
            }
            state.to_le_bytes()
        };
        let noise: Vec<u8> = (0..140_000).flat_map(|_| next()).collect();
        let (_directory, artifact) = artifact(&noise, "");
        let error = config_map(&args("big.wasm".into()), &artifact, &"web".parse().unwrap()).unwrap_err();
        assert!(
            error.message.starts_with("big.wasm: has ") && error.message.contains("--plugins DIR"),
            "{error:?}"
        );
        assert!(error.message.contains("OCI"), "{error:?}");
    }

    #[test]
    fn names_are_checked() {
        for right in ["web", "web-plugin.v1", "a"] {
            check_config_map_name(right).unwrap();
        }
        for wrong in ["", "Web", "-a", "a-", "a..b", "a_b"] {
            assert!(check_config_map_name(wrong).is_err(), "{wrong}");
        }
    }
}
