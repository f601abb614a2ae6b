//! What a kubelet writes into a pod's status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

/// How a pod is doing, as far as anyone can tell from its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodState {
    /// Phase Running, every container started and ready.
    Ready,
    /// Phase Running, every container started but none ready.
    NotReady,
    /// Phase Failed: every container exited with code 1.
    Failed,
    /// Phase Succeeded: every container exited with code 0.
    Succeeded,
}

impl PodState {
    /// The state that a pod's status shows; `None` while it is pending.
    pub fn of(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref()?;
        match status.phase.as_deref()? {
            "Failed" => Some(Self::Failed),
            "Succeeded" => Some(Self::Succeeded),
            "Running" => {
                let mut conditions = status.conditions.iter().flatten();
                let ready =
                    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
                Some(if ready { Self::Ready } else { Self::NotReady })
            }
            _ => None,
        }
    }

    /// Whether a pod never leaves this state.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Succeeded)
    }

    fn phase(self) -> &'static str {
        match self {
            Self::Ready | Self::NotReady => "Running",
            Self::Failed => "Failed",
            Self::Succeeded => "Succeeded",
        }
    }

    fn container_state(self, now: &str) -> Value {
        let exited = |code: i32, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}});
        match self {
            Self::Ready | Self::NotReady => json!({"running": {"startedAt": now}}),
            Self::Failed => exited(1, "Error"),
            Self::Succeeded => exited(0, "Completed"),
        }
    }
}

/// The strategic merge patch of the status subresource that brings a pod into this state.
///
/// Conditions merge by type, so the scheduler's PodScheduled stays. The uid makes the server refuse the patch if
/// another pod has taken the name meanwhile.
pub(crate) fn patch(pod: &Pod, state: PodState, ip: &str, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(); // metav1.Time has whole seconds
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let started = started.map_or_else(|| json!(now), |time| json!(time));
    let ready = state == PodState::Ready;
    let spec = pod.spec.as_ref();

    let condition = |kind: &str, holds: bool| {
        let mut condition = json!({
            "type": kind,
            "status": if holds { "True" } else { "False" },
            "lastTransitionTime": now,
            "observedGeneration": pod.metadata.generation,
        });
        if state == PodState::Succeeded && kind != "PodReadyToStartContainers" && !holds {
            condition["reason"] = json!("PodCompleted");
        } else if !holds {
            condition["reason"] = json!("ContainersNotReady");
        }
        condition
    };
    let container = |container: &Container, state: PodState| {
        json!({
            "name": container.name,
            "image": container.image,
            "imageID": "",
            "containerID": format!("harness://{}", container.name),
            "restartCount": 0,
            "started": !state.is_final(),
            "ready": state == PodState::Ready,
            "state": state.container_state(&now),
        })
    };
    // Init containers have run to their end, except sidecars, which go on beside the containers.
    let init_container = |init: &Container| {
        if init.restart_policy.as_deref() == Some("Always") {
            return container(init, state);
        }
        let mut status = container(init, PodState::Succeeded);
        status["ready"] = json!(true); // of an init container, ready means that it succeeded
        status
    };

    json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "observedGeneration": pod.metadata.generation,
            "phase": state.phase(),
            "startTime": started,
            "hostIP": "127.0.0.1",
            "hostIPs": [{"ip": "127.0.0.1"}],
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [
                condition("PodReadyToStartContainers", !state.is_final()),
                condition("Initialized", true),
                condition("ContainersReady", ready),
                condition("Ready", ready),
            ],
            "containerStatuses": spec.map(|spec| {
                spec.containers.iter().map(|each| container(each, state)).collect::<Vec<_>>()
            }),
            "initContainerStatuses": spec.map(|spec| {
                spec.init_containers.iter().flatten().map(init_container).collect::<Vec<_>>()
            }),
        },
    })
}
