//! `websites.example.com`: a link, kept in a ConfigMap. The example of a kind that has grown out of its first version:
//! `v1alpha1` has `address: shop.example.com:8443`, `v1` says host and port apart, and more. Users of either see all
//! objects in theirs.
//!
//! - [`v1`] and [`v1alpha1`]: the specs; `v1` is stored
//! - [`Conversion`]: between them, without loss
//! - [`Admission`]: a title for who gives none, and checks
//!
//! To retire the old version: serve it no more once nobody asks for it (the API server counts requests by version); before
//! it leaves the definition, every object must have been stored in the new one and `status.storedVersions` say so, as
//! Kubernetes' storage version migration does.

pub mod v1;
pub mod v1alpha1;

use pilothouse_sdk::conversion::{keep, respec, take};
use pilothouse_sdk::prelude::*;

use crate::v1::Website;

/// What `v1alpha1` cannot say, while an object is shown in it.
const KEPT: &str = "example.com/website-v1";

impl Reconciler for Website {
    const PRIMARY: Resource = Resource::namespaced("example.com", "v1", "Website", "websites");
    type Status = NoStatus;

    fn controller() -> Controller {
        let crd = Crd::of::<Self>()
            .version::<v1alpha1::Website>("v1alpha1")
            .column("Host", Column::Text, ".spec.host")
            .column("Title", Column::Text, ".spec.title")
            .age();
        Controller::new(crd).owns(CONFIG_MAP)
    }

    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        let mut map = CONFIG_MAP.object(pass.name());
        map["data"] = json!({"url": pass.spec.url(), "title": pass.spec.title});
        actions.apply(map);
        let ready = match pass.child(CONFIG_MAP, pass.name()) {
            Some(_) => Condition::yes("Ready", "Written", "the ConfigMap is there"),
            None => Condition::no("Ready", "Writing", "the ConfigMap is not there yet"),
        };
        actions.push(pass.set_status(&NoStatus {}).condition(ready));
        Ok(())
    }
}

impl Admission for Website {
    const GUARDED: Resource = Self::PRIMARY;

    fn guard() -> Guard {
        Guard::of(Self::GUARDED).defaults()
    }

    fn validate(review: &Review<Self>) -> Verdict {
        let mut problems = Problems::default();
        let last = review.spec.host.rsplit('.').next().unwrap_or_default();
        problems.check(last != "invalid", "spec.host", "nothing is ever served below `.invalid`");
        let verdict = Verdict::from(problems);
        match review.spec.port {
            Some(80) => {
                verdict.warn("spec.port: 80 is mostly HTTP without encryption, and the link says https")
            }
            _ => verdict,
        }
    }

    fn default_fields(spec: &mut Value, asked: &Asked) {
        // No constant, or the schema would say it.
        if spec["title"].is_null() && !asked.name().is_empty() {
            spec["title"] = json!(asked.name().replace('-', " "));
        }
    }
}

impl Conversion for Website {
    const CONVERTED: Resource = Self::PRIMARY;

    fn convert(object: &mut Value, from: &str, to: &str) -> Result<(), String> {
        match (from, to) {
            ("v1", "v1alpha1") => {
                let mut unsaid = v1alpha1::Unsaid::default();
                respec(object, |spec: Website| {
                    let (old, rest) = v1alpha1::Website::of(spec);
                    unsaid = rest;
                    old
                })?;
                keep(object, KEPT, &unsaid.to_json());
                Ok(())
            }
            ("v1alpha1", "v1") => {
                let unsaid = v1alpha1::Unsaid::read(take(object, KEPT));
                let mut problem = None;
                respec(object, |spec: v1alpha1::Website| {
                    spec.into_v1(unsaid).map_err(|error| problem = Some(error)).ok()
                })?;
                problem.map_or(Ok(()), Err)
            }
            _ => Err(["there is no way from ", from, " to ", to].concat()),
        }
    }
}

export!(Website; admission: Website; conversion: Website);
