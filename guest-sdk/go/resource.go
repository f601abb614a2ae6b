package pilothouse

import "encoding/json"

// Object is a Kubernetes object, as package json reads it.
type Object = map[string]any

// Resource is a kind, with what the API server's paths and RBAC rules need of it. The core group is the empty string.
type Resource struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	Plural  string `json:"plural"`
	Scope   string `json:"scope"`
}

// Namespaced is a kind whose objects live in a namespace.
func Namespaced(group, version, plural, kind string) Resource {
	return Resource{Group: group, Version: version, Kind: kind, Plural: plural, Scope: "Namespaced"}
}

// Cluster is a kind whose objects live in none.
func Cluster(group, version, plural, kind string) Resource {
	return Resource{Group: group, Version: version, Kind: kind, Plural: plural, Scope: "Cluster"}
}

// APIVersion is the text of apiVersion: v1 or apps/v1.
func (r Resource) APIVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// Object is the beginning of an object of this kind: apiVersion, kind and metadata.name.
func (r Resource) Object(name string) Object {
	return Object{"apiVersion": r.APIVersion(), "kind": r.Kind, "metadata": map[string]any{"name": name}}
}

// IsKindOf says whether an object is of this kind.
func (r Resource) IsKindOf(object Object) bool {
	return object["apiVersion"] == r.APIVersion() && object["kind"] == r.Kind
}

// Built-in kinds.
var (
	ConfigMap               = Namespaced("", "v1", "configmaps", "ConfigMap")
	Secret                  = Namespaced("", "v1", "secrets", "Secret")
	Service                 = Namespaced("", "v1", "services", "Service")
	ServiceAccount          = Namespaced("", "v1", "serviceaccounts", "ServiceAccount")
	Pod                     = Namespaced("", "v1", "pods", "Pod")
	PersistentVolumeClaim   = Namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
	Node                    = Cluster("", "v1", "nodes", "Node")
	Namespace               = Cluster("", "v1", "namespaces", "Namespace")
	Deployment              = Namespaced("apps", "v1", "deployments", "Deployment")
	StatefulSet             = Namespaced("apps", "v1", "statefulsets", "StatefulSet")
	DaemonSet               = Namespaced("apps", "v1", "daemonsets", "DaemonSet")
	Job                     = Namespaced("batch", "v1", "jobs", "Job")
	CronJob                 = Namespaced("batch", "v1", "cronjobs", "CronJob")
	PodDisruptionBudget     = Namespaced("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
	HorizontalPodAutoscaler = Namespaced("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
	Ingress                 = Namespaced("networking.k8s.io", "v1", "ingresses", "Ingress")
	NetworkPolicy           = Namespaced("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
)

// name of an object; empty if it has none.
func name(object Object) string {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}

// text is a value as JSON. Keys are sorted, so that the same decision is the same text.
func text(value any) string {
	bytes, err := json.Marshal(value)
	if err != nil {
		// Only of what no JSON has: a channel, a function, an infinite number.
		panic("pilothouse: " + err.Error())
	}
	return string(bytes)
}
