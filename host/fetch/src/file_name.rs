//! Names of plugin files: `NAME.wasm`, `NAME.wasm.gz`, `NAME.wasm.zst`.

use std::path::Path;

/// In the order in which they win when one name has several.
const SUFFIXES: [&str; 3] = [".wasm", ".wasm.gz", ".wasm.zst"];

/// NAME and the rank of the suffix, if this is the name of a plugin file. Names that begin with a dot are none:
/// kubelet keeps its bookkeeping in `..data` and `..2025_…`, and editors and copying programs their drafts in
/// `.NAME.wasm.x7Qk`.
pub(crate) fn split(file_name: &str) -> Option<(&str, usize)> {
    if file_name.starts_with('.') {
        return None;
    }
    let strip = |(rank, suffix): (usize, &&str)| file_name.strip_suffix(*suffix).map(|stem| (stem, rank));
    SUFFIXES.iter().enumerate().find_map(strip).filter(|(stem, _)| !stem.is_empty())
}

/// NAME of a file that was named by hand and may be called anything: without the suffix of a plugin file, else
/// without its last extension.
pub fn stem_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match split(&name) {
        Some((stem, _)) => stem.to_owned(),
        None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_three_suffixes_make_a_plugin_file() {
        assert_eq!(split("web.wasm"), Some(("web", 0)));
        assert_eq!(split("web.wasm.gz"), Some(("web", 1)));
        assert_eq!(split("web.v2.wasm.zst"), Some(("web.v2", 2)));
        for other in ["web.yaml", "web", "web.wasm.bak", ".wasm", "..data", ".web.wasm", "..2025_01_01.wasm"]
        {
            assert_eq!(split(other), None, "{other}");
        }
    }

    #[test]
    fn files_named_by_hand_may_be_called_anything() {
        assert_eq!(stem_of(Path::new("target/web.wasm.gz")), "web");
        assert_eq!(stem_of(Path::new("out/plugin.bin")), "plugin");
        assert_eq!(stem_of(Path::new("/tmp/plugin")), "plugin");
    }
}
