//! Applications of a platform: `egapps.egplatform.platform.evillgenius.com/v1alpha1`. Each becomes a Deployment of the
//! same name, and its status names the pods.
//!
//! - [`spec`]: what the user writes and what the status says
//! - [`mod@validate`]: the checks, for whoever makes them: a pass, or a webhook
//! - `deployment`: the child

mod deployment;
pub mod spec;
pub mod validate;

use pilothouse_sdk::{names, prelude::*};

pub use spec::{EgApp, EgAppStatus, Identity};
pub use validate::validate;

impl Reconciler for EgApp {
    const PRIMARY: Resource =
        Resource::namespaced("egplatform.platform.evillgenius.com", "v1alpha1", "EGApp", "egapps");
    type Status = EgAppStatus;

    fn controller() -> Controller {
        let crd = Crd::of::<Self>()
            .names(names::DNS_LABEL, names::DNS_LABEL_LENGTH_MAX)
            .rule_at(".spec.appId", spec::APP_ID_RULE, spec::APP_ID_FIXED)
            .scale(".spec.replicaCount", ".status.replicas")
            .scale_selector(".status.selector")
            .column("Framework", Column::Text, ".spec.framework")
            .column("Environment", Column::Text, ".spec.environment")
            .column("Replicas", Column::Integer, ".spec.replicaCount")
            .column("Ready", Column::Integer, ".status.readyReplicas")
            .age();
        let pods = Related::matching("pods", POD, &deployment::selector("$(name)")).metadata_only();
        Controller::new(crd).owns(DEPLOYMENT).reads(pods)
    }

    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        let (before, chosen) = (Identity::of(&pass.primary), pass.spec.identity(pass.name()));
        let problems = validate(pass.name(), &pass.spec, before.as_ref());
        let live = pass.child_as::<views::Deployment<'_>>(pass.name());
        let labelled = pass.related("pods").into_iter().flat_map(|answer| &answer.objects);
        let pods = labelled.filter(|pod| views::Pod(pod).is_of_deployment(pass.name()));
        let mut status = EgAppStatus {
            // Sorted as they come.
            pods: pods.map(|pod| pod.name().to_owned()).collect(),
            replicas: live.map_or(0, |live| live.current()),
            ready_replicas: live.map_or(0, |live| live.ready_replicas()),
            selector: deployment::selector(pass.name()),
            identity: before,
        };
        if !problems.is_empty() {
            // The Deployment stays as it is: what was right still runs.
            return Err(pass.refuse(problems, &status, actions));
        }
        let wanted = deployment::object(pass, &chosen);
        let ready = views::Deployment::ready(live, &wanted);
        status.identity = Some(chosen);
        actions.apply(wanted);
        actions.push(pass.set_status(&status).condition(ready));
        Ok(())
    }
}

impl Admission for EgApp {
    const GUARDED: Resource = Self::PRIMARY;

    fn validate(review: &Review<Self>) -> Verdict {
        // A name that is to be generated is none yet.
        let name = if review.name().is_empty() { "generated" } else { review.name() };
        let chosen = review.old_object.as_ref().and_then(|old| Identity::of(old));
        let before = chosen.or_else(|| review.old.as_ref().map(|old| old.identity(name)));
        validate(name, &review.spec, before.as_ref()).into()
    }
}

export!(EgApp; admission: EgApp);
