"""PostgreSQL clusters, in the manner of a kopf handler: `db.example.com/v1alpha1 postgresclusters`.

The kind and its CustomResourceDefinition are those of the Rust plugin `postgres-cluster`, which does more; of the two
one is installed.
"""

import json
from pathlib import Path

import pilothouse
from pilothouse import SECRET, SERVICE, STATEFUL_SET, AdmissionError, TemporaryError

CLUSTERS = ("db.example.com", "v1alpha1", "postgresclusters")

pilothouse.plugin("postgres-cluster-python", version="0.1.0")
pilothouse.controller(
    *CLUSTERS,
    kind="PostgresCluster",
    children=[SECRET, SERVICE, STATEFUL_SET],
    # Read while the component is built.
    crd=json.loads(Path(__file__).with_name("crd.json").read_text()),
    # That of the Rust plugin too, so that whichever is installed lets go what the other one held.
    finalizer="db.example.com/cleanup",
)


@pilothouse.on.validate(*CLUSTERS)
def check(spec, old, **_):
    size = gibibytes(spec)
    if old is not None and size < gibibytes(old["spec"], least=0):
        raise AdmissionError(
            f"volumes cannot shrink, {old['spec']['storage']} or more would be right",
            field="spec.storage",
            reason="FieldValueForbidden",
        )


def gibibytes(spec, least=1):
    """The size as a number. The schema says its form; of a cluster without webhooks the pass finds what the form allows."""
    size = int(spec["storage"].removesuffix("Gi"))
    if size < least:
        raise AdmissionError(f"{spec['storage']} is no size, at least 1Gi would be right", field="spec.storage")
    return size


@pilothouse.on.create(*CLUSTERS)
@pilothouse.on.update(*CLUSTERS)
@pilothouse.on.delete(*CLUSTERS)
def reconcile(spec, name, namespace, logger, **_):
    # A cluster that is being deleted shall have none: `shut_down` waits for it, and nothing is made any more.
    replicas = 0 if pilothouse.deleting() else spec["replicas"]
    logger.info(f"ensuring {name} has {replicas} replicas")
    if not pilothouse.deleting():
        provide(name, spec)
    return {"desiredReplicas": replicas}


def provide(name, spec):
    gibibytes(spec)
    pilothouse.generate_secret(
        f"{name}-app", literals={"username": "app"}, random={"password": (32, "alphanumeric")}
    )
    pilothouse.apply(headless_service(name))
    # The volumes' template is immutable: a new one takes a new StatefulSet, which takes over the pods that are there.
    pilothouse.apply(stateful_set(name, spec), on_immutable="recreate-orphan")


@pilothouse.reconcile(*CLUSTERS)
def report(spec, name, children, **_):
    counts = (children.named(STATEFUL_SET, name) or {}).get("status", {})
    ready, wanted = counts.get("readyReplicas", 0), spec["replicas"]
    reason = "AllReplicasReady" if ready == wanted else "Provisioning"
    pilothouse.condition("Ready", ready == wanted, reason, f"{ready}/{wanted} replicas ready")
    return {"replicas": counts.get("replicas", 0), "readyReplicas": ready}


@pilothouse.on.delete(*CLUSTERS)
def shut_down(name, children, logger, **_):
    """The instances go before what they need while they shut down: their credentials and names."""
    running = children.named(STATEFUL_SET, name)
    if running is None:
        logger.info(f"{name} has shut down")
        return
    if "deletionTimestamp" not in running["metadata"]:
        pilothouse.delete(STATEFUL_SET, name, propagation="foreground")
    raise TemporaryError(f"{name} is shutting down", delay=10)


def headless_service(name):
    return {
        **SERVICE.object(name),
        "spec": {"clusterIP": "None", "selector": labels(name), "ports": [{"name": "pg", "port": 5432}]},
    }


def stateful_set(name, spec):
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": spec["storage"]}}}
    if "storageClass" in spec:
        claim["storageClassName"] = spec["storageClass"]
    password = {"secretKeyRef": {"name": f"{name}-app", "key": "password"}}
    container = {
        "name": "postgres",
        "image": spec.get("image", f"postgres:{spec['version']}"),
        "ports": [{"name": "pg", "containerPort": 5432}],
        "env": [
            {"name": "POSTGRES_USER", "value": "app"},
            {"name": "POSTGRES_PASSWORD", "valueFrom": password},
            {"name": "PGDATA", "value": "/var/lib/postgresql/data/pgdata"},
        ],
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/postgresql/data"}],
        "resources": spec.get("resources", {}),
    }
    return {
        **STATEFUL_SET.object(name),
        "spec": {
            "replicas": spec["replicas"],
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels(name)},
            "template": {"metadata": {"labels": labels(name)}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }


def labels(name):
    return {"app.kubernetes.io/instance": name}
