//! Objects of others are no cost.

use std::path::Path;

use pilothouse_harness::{Host, eventually};
use serde_json::{Value, json};

use crate::{CONFIG_MAP, DEADLINE, Kind, SECRET, crowd::Crowd};

/// What one start may take more than another of the same host.
const NOISE_BYTES: u64 = 4 << 20;

fn foreign(kind: Kind, name: &str, bytes: usize) -> Value {
    let field = if kind == SECRET { "stringData" } else { "data" };
    json!({"apiVersion": "v1", "kind": kind.1, "metadata": {"name": name}, field: {"k": "x".repeat(bytes)}})
}

/// prometheus-operator#5410, bpfman-operator#56: a host whose plugin owns ConfigMaps and Secrets takes as much memory
/// beside so many `small` ones (5 KB, every other a Secret) and `large` ones (500 KB) of others as without them: after
/// a start, and after a resource was served.
///
/// # Panics
/// If it takes more.
pub async fn memory_does_not_depend_on_foreign_objects(
    plugin: &Path,
    primary: Kind,
    small: usize,
    large: usize,
) {
    let crowd = Crowd::new(plugin).await;
    let before = served(&crowd, primary, "first").await;
    for (kind, part) in [(CONFIG_MAP, 0), (SECRET, 1)] {
        for (size, count, bytes) in [("small", small, 5_000), ("large", large, 500_000)] {
            let half = (0..count).filter(|at| at % 2 == part);
            crowd.create_all(kind, half.map(|at| foreign(kind, &format!("{size}-{at}"), bytes))).await;
        }
    }
    let after = served(&crowd, primary, "second").await;
    eprintln!(
        "RSS beside {small} objects of 5 KB and {large} of 500 KB: {} KiB, without them {} KiB",
        after >> 10,
        before >> 10
    );
    let all = (small * 5_000 + large * 500_000) as u64;
    assert!(all > 2 * NOISE_BYTES, "so few would not be noticed");
    assert!(after < before + NOISE_BYTES, "{after} bytes, {before} without them");
}

/// Starts a host, lets it serve one more object, and says what memory it takes then.
async fn served(crowd: &Crowd, primary: Kind, name: &str) -> u64 {
    let host: Host = crowd.host().await;
    let child =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
    let Kind(api_version, kind, _) = primary;
    let object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {"children": [child]},
    });
    crowd.create_all(primary, [object]).await;
    crowd.present(CONFIG_MAP, name).await;
    // What the start took may be given back a little later.
    let mut least = u64::MAX;
    eventually(DEADLINE, "the memory to fall no more", || {
        let now = host.usage().unwrap().rss_bytes;
        let falls = now < least;
        least = least.min(now);
        async move { !falls }
    })
    .await;
    host.terminate().await.unwrap();
    least
}
