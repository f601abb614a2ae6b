//! PostgreSQL clusters: `postgresclusters.db.example.com/v1alpha1`.
//!
//! This level makes the objects of a cluster and keeps them right: a StatefulSet, its Services, credentials and
//! disruption budget. The instances do not replicate yet, and the status says so.
//!
//! - [`spec`]: what the user writes, and the checks that a schema cannot make
//! - [`plan`]: one pass, pure: which objects there shall be, and what the status says
//! - `children`: one file for each object
//! - `status`: conditions, and events on their transitions

mod children;
mod names;
mod plan;
mod quantity;
pub mod spec;
mod status;

use pilothouse_sdk::prelude::*;

pub use spec::PostgresCluster;
pub use status::PostgresClusterStatus;

impl Reconciler for PostgresCluster {
    const PRIMARY: Resource =
        Resource::namespaced("db.example.com", "v1alpha1", "PostgresCluster", "postgresclusters");
    type Status = PostgresClusterStatus;

    fn controller() -> Controller {
        let crd = Crd::of::<Self>()
            .short_name("pgc")
            .names(names::PATTERN, names::LENGTH_MAX)
            .scale(".spec.replicas", ".status.replicas")
            .column("Replicas", Column::Integer, ".spec.replicas")
            .column("Ready", Column::Integer, ".status.readyReplicas")
            .column("Primary", Column::Text, ".status.primary")
            .column("Version", Column::Text, ".spec.version")
            .age();
        Controller::new(crd)
            .owns(SECRET)
            .owns(SERVICE)
            .owns(POD_DISRUPTION_BUDGET)
            .owns(STATEFUL_SET)
            .finalizer("db.example.com/cleanup")
    }

    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        plan::plan(pass, actions)
    }
}

export!(PostgresCluster);
