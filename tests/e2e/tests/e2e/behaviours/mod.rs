//! Behaviours that users of other frameworks had to report, each as a test named for what broke, with the source of the
//! report in its doc line. MC is metacontroller/metacontroller, GMC GoogleCloudPlatform/metacontroller, CR
//! kubernetes-sigs/controller-runtime, K8s kubernetes/kubernetes.
//!
//! What needs no host, only the API server and one part of it, is in `host/cluster/tests`; what needs minutes is in
//! `tests/faults`.

mod deletion;
mod load;
mod ownership;
mod quiet;
mod rollout;
mod tracked;
mod watches;
