//! StatefulSet NAME: the instances and their volumes.
//!
//! Its selector, `serviceName`, `podManagementPolicy` and volume templates cannot change once it exists: the first
//! three are functions of the name, and [`Volume`] keeps the template as it is.

use pilothouse_sdk::prelude::*;

use crate::names::{DATABASE, Names, PASSWORD_KEY, PORT, PORT_NAME};
use crate::quantity::Storage;
use crate::spec::Checked;

/// The user `postgres` of the official image.
const POSTGRES_UID: u32 = 999;

/// A subdirectory of the mount: the root of a volume may hold `lost+found`, and initdb wants an empty directory.
const DATA_MOUNT: &str = "/var/lib/postgresql/data";
const DATA_DIRECTORY: &str = "/var/lib/postgresql/data/pgdata";

/// Seconds for a fast shutdown: open transactions are rolled back and a checkpoint is written.
const SHUTDOWN_SECONDS: u32 = 120;

/// Succeeds when connections are accepted. Over TCP, since initialisation listens on the socket only.
const ACCEPTS: &str = "pg_isready --quiet --host=127.0.0.1 --port=5432 --username=app --dbname=app";

/// Succeeds too while connections are refused because the server starts, recovers or stops (1): that is life. Death is
/// no answer (2).
const LIVES: &str =
    "pg_isready --quiet --host=127.0.0.1 --port=5432 --username=app --dbname=app || [ $? -eq 1 ]";

/// The volume template, and how it differs from what the user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    size: String,
    storage_class: Option<String>,
    pub(crate) pending: Option<Pending>,
}

/// A change of the volumes that is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pending {
    /// From this size to a larger one.
    Grow(String),
    /// From this size to a smaller one, which is never done.
    Shrink(String),
    /// From this storage class to another, which is never done.
    StorageClass(Option<String>),
}

impl Volume {
    /// As the user asks for if there is no StatefulSet yet, as it is if there is one.
    pub(crate) fn choose(spec: &Checked, live: Option<views::StatefulSet<'_>>) -> Self {
        let wanted =
            Self { size: spec.storage.to_string(), storage_class: spec.storage_class.clone(), pending: None };
        let Some(claim) = live.and_then(|set| set.at("/spec/volumeClaimTemplates/0/spec").cloned()) else {
            return wanted;
        };
        let Some(size) = claim.pointer("/resources/requests/storage").and_then(Value::as_str) else {
            return wanted;
        };
        let storage_class = claim["storageClassName"].as_str().map(str::to_owned);
        let pending = match Storage::read(size) {
            Some(present) if present < spec.storage => Some(Pending::Grow(size.to_owned())),
            Some(present) if present == spec.storage => {
                (storage_class != spec.storage_class).then(|| Pending::StorageClass(storage_class.clone()))
            }
            _ => Some(Pending::Shrink(size.to_owned())),
        };
        Self { size: size.to_owned(), storage_class, pending }
    }

    fn claim(&self) -> Value {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": self.size}},
        });
        if let Some(class) = &self.storage_class {
            spec["storageClassName"] = json!(class);
        }
        json!({"metadata": {"name": "data"}, "spec": spec})
    }
}

pub(crate) fn object(names: Names<'_>, spec: &Checked, volume: &Volume) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": names.metadata(names.cluster),
        "spec": {
            "replicas": spec.replicas,
            "serviceName": names.cluster,
            "selector": {"matchLabels": names.selector()},
            // An instance must not wait for another one that cannot start.
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            "template": {"metadata": {"labels": names.metadata(names.cluster)["labels"]}, "spec": pod(names, spec)},
            "volumeClaimTemplates": [volume.claim()],
        },
    })
}

fn pod(names: Names<'_>, spec: &Checked) -> Value {
    json!({
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": SHUTDOWN_SECONDS,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": POSTGRES_UID,
            "runAsGroup": POSTGRES_UID,
            "fsGroup": POSTGRES_UID,
            // Walking through a large volume at each start would take minutes.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": names.selector()},
            },
        }]}},
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": names.selector()},
        }],
        "containers": [container(names, spec)],
        "volumes": [
            {"name": "run", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            // Parallel queries need more shared memory than a runtime's 64 MiB.
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    })
}

fn container(names: Names<'_>, spec: &Checked) -> Value {
    json!({
        "name": "postgres",
        "image": spec.image,
        "env": [
            {"name": "PGDATA", "value": DATA_DIRECTORY},
            {"name": "POSTGRES_USER", "value": DATABASE},
            {"name": "POSTGRES_DB", "value": DATABASE},
            {
                "name": "POSTGRES_PASSWORD",
                "valueFrom": {"secretKeyRef": {"name": names.secret(), "key": PASSWORD_KEY}},
            },
        ],
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        "resources": resources(spec),
        // Ten minutes for initialisation; recovery after a crash already counts as life.
        "startupProbe": probe(LIVES, 5, 120),
        "livenessProbe": probe(LIVES, 10, 6),
        "readinessProbe": probe(ACCEPTS, 5, 3),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": DATA_MOUNT},
            {"name": "run", "mountPath": "/var/run/postgresql"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    })
}

fn probe(command: &str, period_seconds: u32, failures: u32) -> Value {
    json!({
        "exec": {"command": ["sh", "-c", command]},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    })
}

fn resources(spec: &Checked) -> Value {
    let (cpu, memory) = spec.requests;
    let mut resources = json!({"requests": {"cpu": cpu.to_string(), "memory": memory.to_string()}});
    if let Some(cpu) = spec.limits.0 {
        resources["limits"]["cpu"] = json!(cpu.to_string());
    }
    if let Some(memory) = spec.limits.1 {
        resources["limits"]["memory"] = json!(memory.to_string());
    }
    resources
}
