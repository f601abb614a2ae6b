//! One pass: which objects there shall be, and what the status says. Pure, and the only place that knows the order.

use pilothouse_sdk::prelude::*;

use crate::children::{disruption_budget, secret, services, stateful_set};
use crate::names::Names;
use crate::spec::PostgresCluster;
use crate::status;

pub(crate) fn plan(pass: &Pass<PostgresCluster>, actions: &mut Actions) -> Result<(), Failure> {
    let checked = Names::of(pass.name(), pass.namespace()).and_then(|names| Ok((names, pass.spec.check()?)));
    let (names, spec) = match checked {
        Ok(checked) => checked,
        Err(failure) => {
            status::report_invalid(pass, &failure, actions);
            return Err(failure);
        }
    };
    let live = pass.child_as::<views::StatefulSet<'_>>(names.cluster);
    let volume = stateful_set::Volume::choose(&spec, live);

    // The Secret first: the first pod that starts needs it.
    actions.push(secret::template(names));
    for service in [services::headless(names), services::read_write(names), services::read_only(names)] {
        actions.apply(service);
    }
    actions.apply(disruption_budget::object(names));
    actions.apply(stateful_set::object(names, &spec, &volume));
    status::report(pass, names, &spec, &volume, live, actions);
    Ok(())
}
