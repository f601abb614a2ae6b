//! The objects of a cluster, one file each. Every function here says the whole of an object and nothing of the rest.

pub(crate) mod disruption_budget;
pub(crate) mod secret;
pub(crate) mod services;
pub(crate) mod stateful_set;
