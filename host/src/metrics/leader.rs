//! `leader_election_master_status`, as client-go's leader election exports it: 1 on the host that leads, by the name of
//! the Lease.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::series::Series;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabel {
    name: String,
}

/// One series for each Lease that this host stands for.
pub(crate) struct LeaderFamily(Family<LeaseLabel, Gauge>);

/// Whether this host holds one Lease. The series ends when this is dropped.
pub(crate) struct LeaderStatus(Series<LeaseLabel, Gauge>);

impl LeaderFamily {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let family = Family::default();
        registry.register(
            "leader_election_master_status",
            "1 on the host that holds the Lease, 0 on one that waits for it",
            family.clone(),
        );
        Self(family)
    }

    /// This host stands for the Lease of this name, and does not hold it yet.
    pub(crate) fn lease(&self, name: &str) -> LeaderStatus {
        LeaderStatus(Series::new(&self.0, LeaseLabel { name: name.to_owned() }))
    }
}

impl LeaderStatus {
    /// It holds the Lease, or does not any more.
    pub(crate) fn set(&self, leads: bool) {
        self.0.set(i64::from(leads));
    }
}
