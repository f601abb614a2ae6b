//! The checks of an EGApp. The schema makes them first and a webhook second; a pass makes them for resources that neither
//! has seen, as they are older than the rule or come from a cluster without it.

use pilothouse_sdk::{Problems, names::is_dns_label};

use crate::spec::{APP_ID_FIXED, EgApp, FRAMEWORK_FIXED, Identity};

const LABEL: &str = "use at most 63 lower case letters, digits and `-`, with a letter or digit at both ends";

/// Everything that is wrong with this spec of a resource of this name. `before` is what was chosen for it earlier, if
/// anything was.
pub fn validate(name: &str, spec: &EgApp, before: Option<&Identity>) -> Problems {
    let now = spec.identity(name);
    let mut problems = Problems::default();
    problems.check(is_dns_label(name), "metadata.name", LABEL);
    problems.check(spec.app_id.as_deref().is_none_or(is_dns_label), "spec.appId", LABEL);
    problems.check(spec.replica_count >= 0, "spec.replicaCount", "use 0 or more");
    problems.check(spec.image.as_deref() != Some(""), "spec.image", "name an image, or leave it out");
    if let Some(before) = before {
        problems.check(before.app_id == now.app_id, "spec.appId", APP_ID_FIXED);
        problems.check(before.framework == now.framework, "spec.framework", FRAMEWORK_FIXED);
    }
    problems
}
