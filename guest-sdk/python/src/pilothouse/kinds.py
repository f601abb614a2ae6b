"""Kinds of Kubernetes objects, with what the API server's paths and RBAC rules need of them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Resource(NamedTuple):
    """A kind. The core group is the empty string."""

    group: str
    version: str
    plural: str
    kind: str
    scope: str = "Namespaced"

    @property
    def api_version(self) -> str:
        """The text of `apiVersion`: `v1` or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def object(self, name: str) -> dict[str, Any]:
        """The beginning of an object of this kind: `apiVersion`, `kind` and `metadata.name`."""
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}}

    def is_kind_of(self, body: dict[str, Any]) -> bool:
        """Whether an object is of this kind."""
        return body.get("apiVersion") == self.api_version and body.get("kind") == self.kind

    def to_json(self) -> dict[str, str]:
        """As the manifest writes it."""
        return self._asdict()


CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")
SECRET = Resource("", "v1", "secrets", "Secret")
SERVICE = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNT = Resource("", "v1", "serviceaccounts", "ServiceAccount")
POD = Resource("", "v1", "pods", "Pod")
PERSISTENT_VOLUME_CLAIM = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NODE = Resource("", "v1", "nodes", "Node", "Cluster")
NAMESPACE = Resource("", "v1", "namespaces", "Namespace", "Cluster")
DEPLOYMENT = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SET = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SET = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOB = Resource("batch", "v1", "jobs", "Job")
CRON_JOB = Resource("batch", "v1", "cronjobs", "CronJob")
POD_DISRUPTION_BUDGET = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
HORIZONTAL_POD_AUTOSCALER = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
INGRESS = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")
NETWORK_POLICY = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
ROLE = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDING = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
