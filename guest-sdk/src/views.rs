//! Typed views of the kinds that operators read most. A view borrows an [`Object`] and reads the one field that is
//! asked for: nothing is copied, and a plugin carries no type of Kubernetes that it does not use.

use serde_json::Value;

use crate::condition::{Condition, State};
use crate::kinds::{
    CONFIG_MAP, DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, POD, POD_DISRUPTION_BUDGET, Resource, SECRET,
    SERVICE, STATEFUL_SET,
};
use crate::object::Object;

/// What [`Pass::child_as`](crate::Pass::child_as) needs to know of a view.
pub trait View<'a>: Sized {
    /// The kind that it views.
    const KIND: Resource;

    /// The view of an object of that kind.
    fn of(object: &'a Object) -> Self;
}

macro_rules! view {
    ($($(#[$doc:meta])* $view:ident($kind:ident) { $($(#[$about:meta])* $method:ident: $as:ident($pointer:literal) -> $type:ty;)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub struct $view<'a>(pub &'a Object);

            impl<'a> View<'a> for $view<'a> {
                const KIND: Resource = $kind;

                fn of(object: &'a Object) -> Self {
                    Self(object)
                }
            }

            impl std::ops::Deref for $view<'_> {
                type Target = Object;

                fn deref(&self) -> &Object {
                    self.0
                }
            }

            impl<'a> $view<'a> {
                $($(#[$about])* pub fn $method(&self) -> $type {
                    self.0.$as($pointer)
                })*
            }
        )*
    };
}

view! {
    /// A ConfigMap.
    ConfigMap(CONFIG_MAP) {}

    /// A Secret: which keys it has. The values are blanked.
    Secret(SECRET) {}

    /// A Service.
    Service(SERVICE) {
        /// Its address in the cluster; `None` as text for a headless one, empty before it has one.
        cluster_ip: text("/spec/clusterIP") -> &'a str;
        /// The address that a load balancer gave it.
        load_balancer_ip: text("/status/loadBalancer/ingress/0/ip") -> &'a str;
        /// The host name that a load balancer gave it.
        load_balancer_hostname: text("/status/loadBalancer/ingress/0/hostname") -> &'a str;
    }

    /// A Deployment.
    Deployment(DEPLOYMENT) {
        /// Pods wanted.
        replicas: int("/spec/replicas") -> i64;
        /// Pods that exist.
        current: int("/status/replicas") -> i64;
        /// Pods that are ready.
        ready_replicas: int("/status/readyReplicas") -> i64;
        /// Pods that have been ready for `minReadySeconds`.
        available_replicas: int("/status/availableReplicas") -> i64;
        /// Pods of the newest template.
        updated_replicas: int("/status/updatedReplicas") -> i64;
    }

    /// A StatefulSet.
    StatefulSet(STATEFUL_SET) {
        /// Pods wanted.
        replicas: int("/spec/replicas") -> i64;
        /// Pods that exist.
        current: int("/status/replicas") -> i64;
        /// Pods that are ready.
        ready_replicas: int("/status/readyReplicas") -> i64;
        /// Pods of the newest template.
        updated_replicas: int("/status/updatedReplicas") -> i64;
        /// Revision of pods that a rollout has not reached.
        current_revision: text("/status/currentRevision") -> &'a str;
        /// Revision of the newest template.
        update_revision: text("/status/updateRevision") -> &'a str;
    }

    /// A Job.
    Job(JOB) {
        /// Pods that finished well.
        succeeded: int("/status/succeeded") -> i64;
        /// Pods that failed.
        failed: int("/status/failed") -> i64;
    }

    /// A Pod.
    Pod(POD) {
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        phase: text("/status/phase") -> &'a str;
        /// Its address.
        ip: text("/status/podIP") -> &'a str;
        /// The node that it runs on.
        node: text("/spec/nodeName") -> &'a str;
    }

    /// A PersistentVolumeClaim.
    PersistentVolumeClaim(PERSISTENT_VOLUME_CLAIM) {
        /// `Pending`, `Bound` or `Lost`.
        phase: text("/status/phase") -> &'a str;
        /// Size asked for, a quantity.
        requested: text("/spec/resources/requests/storage") -> &'a str;
        /// Size there is, a quantity.
        capacity: text("/status/capacity/storage") -> &'a str;
    }

    /// A PodDisruptionBudget.
    PodDisruptionBudget(POD_DISRUPTION_BUDGET) {
        /// Pods that may go away now.
        disruptions_allowed: int("/status/disruptionsAllowed") -> i64;
        /// Healthy pods.
        current_healthy: int("/status/currentHealthy") -> i64;
        /// Healthy pods that must remain.
        desired_healthy: int("/status/desiredHealthy") -> i64;
    }
}

impl<'a> ConfigMap<'a> {
    /// The text under a key.
    pub fn data(&self, key: &str) -> Option<&'a str> {
        self.0.get("data")?.get(key)?.as_str()
    }
}

impl Secret<'_> {
    /// Whether it has this key.
    pub fn has(&self, key: &str) -> bool {
        self.0.get("data").is_some_and(|data| data.get(key).is_some())
    }
}

impl Deployment<'_> {
    /// The condition `Ready` of what a Deployment is made for: true once what is `wanted` of it, and no older template,
    /// runs in as many pods as `wanted` says. A wait for it after an edit ends when the edit has arrived.
    pub fn ready(live: Option<Self>, wanted: &Value) -> Condition {
        let Some(live) = live else {
            return Condition::no("Ready", "Creating", "the Deployment is not there yet");
        };
        let count = wanted["spec"]["replicas"].as_i64().unwrap_or(live.replicas());
        let message =
            [&live.available_replicas().to_string(), "/", &count.to_string(), " pods available"].concat();
        let counts = [live.current(), live.updated_replicas(), live.available_replicas()];
        if live.has_all(wanted) && live.is_observed() && counts == [count; 3] {
            return Condition::yes("Ready", "Available", message);
        }
        match live.condition("Progressing") {
            Some(stuck) if stuck.state == State::False => {
                Condition::no("Ready", &stuck.reason, stuck.message)
            }
            _ => Condition::no("Ready", "RollingOut", message),
        }
    }
}

impl<'a> Pod<'a> {
    /// Whether the Deployment of this name made it; anybody can give a pod its labels. Between the two stands a
    /// ReplicaSet, whose name is the Deployment's and the hash that its pods bear.
    pub fn is_of_deployment(&self, name: &str) -> bool {
        let hash = self.0.label("pod-template-hash").unwrap_or_default();
        self.0.controller() == Some(("ReplicaSet", &*[name, "-", hash].concat()))
    }

    /// Whether it is neither finished nor on its way out.
    pub fn is_alive(&self) -> bool {
        !self.0.is_terminating() && !matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Whether its condition `Ready` is true.
    pub fn is_ready(&self) -> bool {
        self.0.condition("Ready").is_some_and(|ready| ready.state == State::True)
    }

    /// Why a container waits, for example `CreateContainerConfigError`; of the first one that does.
    pub fn waiting_reason(&self) -> Option<&'a str> {
        let containers = self.0.at("/status/containerStatuses")?.as_array()?;
        containers.iter().find_map(|container| container.pointer("/state/waiting/reason")?.as_str())
    }
}
