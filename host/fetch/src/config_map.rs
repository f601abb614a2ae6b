//! A plugin in a ConfigMap: label `pilothouse.dev/plugin: NAME`, one key `NAME.wasm[.gz|.zst]` in `binaryData`, and
//! if there are settings a key `NAME.yaml` in `data`. Anything else in it is refused by its key: a plugin under a
//! mistyped key would otherwise never be loaded, without anybody noticing.

use std::collections::BTreeMap;

use pilothouse_model::names::PLUGIN_LABEL;

use crate::artifact::{Artifact, Origin};
use crate::error::FetchError;
use crate::file_name::split;

/// Reads the plugin from the data of the ConfigMap `namespace/name`, whose label is `label_value`.
pub fn from_config_map(
    namespace: &str,
    name: &str,
    label_value: &str,
    binary_data: &BTreeMap<String, Vec<u8>>,
    data: &BTreeMap<String, String>,
) -> Result<Artifact, FetchError> {
    let wrong = |problem| FetchError::ConfigMap { config_map: format!("{namespace}/{name}"), problem };
    let expected = || format!("`{label_value}.wasm`, `{label_value}.wasm.gz` or `{label_value}.wasm.zst`");
    if label_value.is_empty() {
        return Err(wrong(format!("label {PLUGIN_LABEL} is empty: the name of the plugin would be right")));
    }
    for key in binary_data.keys() {
        if split(key).is_none_or(|(stem, _)| stem != label_value) {
            return Err(wrong(format!(
                "binaryData key `{key}` is not expected: with label {PLUGIN_LABEL}: {label_value}, {} would be right",
                expected()
            )));
        }
    }
    let settings_key = format!("{label_value}.yaml");
    if let Some(key) = data.keys().find(|key| **key != settings_key) {
        return Err(wrong(format!("data key `{key}` is not expected: only `{settings_key}` would be right")));
    }
    let mut binaries = binary_data.iter();
    let (key, bytes) = match (binaries.next(), binaries.next()) {
        (Some(only), None) => only,
        (None, _) => {
            return Err(wrong(format!("binaryData has no plugin: a key {} would be right", expected())));
        }
        (Some((first, _)), Some((second, _))) => {
            return Err(wrong(format!(
                "binaryData keys `{first}` and `{second}` are the same plugin: keep one"
            )));
        }
    };
    let origin =
        Origin::ConfigMap { namespace: namespace.to_owned(), name: name.to_owned(), key: key.clone() };
    let settings = data
        .get(&settings_key)
        .map(|text| (text.clone(), format!("ConfigMap {namespace}/{name}, key {settings_key}")));
    Artifact::assemble(origin, label_value.to_owned(), bytes.clone(), settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY_COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

    fn binary(keys: &[&str]) -> BTreeMap<String, Vec<u8>> {
        keys.iter().map(|key| ((*key).to_owned(), EMPTY_COMPONENT.to_vec())).collect()
    }

    fn text(key: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn one_binary_and_its_settings() {
        let settings = text("web.yaml", "concurrency: 2");
        let artifact =
            from_config_map("ops", "web-plugin", "web", &binary(&["web.wasm"]), &settings).unwrap();
        assert_eq!(artifact.origin.to_string(), "ConfigMap ops/web-plugin, key web.wasm");
        assert_eq!((artifact.stem.as_str(), artifact.settings.concurrency), ("web", 2));
    }

    #[test]
    fn everything_else_is_refused_by_key() {
        let none = BTreeMap::new();
        for (label, binary_data, data, part) in [
            ("web", binary(&[]), none.clone(), "has no plugin: a key `web.wasm`"),
            ("web", binary(&["wbe.wasm"]), none.clone(), "key `wbe.wasm` is not expected"),
            ("web", binary(&["web.wasm", "README"]), none.clone(), "key `README` is not expected"),
            ("web", binary(&["web.wasm", "web.wasm.gz"]), none.clone(), "`web.wasm` and `web.wasm.gz`"),
            (
                "web",
                binary(&["web.wasm"]),
                text("web.yml", ""),
                "data key `web.yml` is not expected: only `web.yaml`",
            ),
            ("", binary(&["web.wasm"]), none.clone(), "label pilothouse.dev/plugin is empty"),
        ] {
            let error =
                from_config_map("ops", "web-plugin", label, &binary_data, &data).unwrap_err().to_string();
            assert!(error.starts_with("ConfigMap ops/web-plugin: ") && error.contains(part), "{error}");
        }
        let wrong = text("web.yaml", "mode: sometimes");
        let error =
            from_config_map("ops", "p", "web", &binary(&["web.wasm"]), &wrong).unwrap_err().to_string();
        assert!(error.starts_with("ConfigMap ops/p, key web.yaml: "), "{error}");
    }
}
