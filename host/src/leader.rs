//! What the host says of its Leases: readiness and the metric.

use pilothouse_cluster::lease::Shards;

use crate::metrics::Metrics;
use crate::serve::Gate;

/// Keeps gate and metric in step with the shards that this host holds.
pub(crate) async fn tell(mut shards: Shards, metrics: Metrics, gate: Gate) {
    let leases = shards.leases();
    let statuses: Vec<_> = leases.iter().map(|(name, _)| metrics.leaders().lease(name)).collect();
    loop {
        // Marks what is read below as seen.
        let _ = shards.terms();
        for (status, (_, holds)) in statuses.iter().zip(shards.leases()) {
            status.set(holds);
        }
        match (shards.problem(), shards.standing_by()) {
            (Some(problem), _) => gate.set(Err(problem)),
            (None, Some(standing_by)) => gate.open_with(standing_by),
            (None, None) => gate.set(Ok(())),
        }
        shards.changed().await;
    }
}
