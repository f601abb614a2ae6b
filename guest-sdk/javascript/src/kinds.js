// Kinds of Kubernetes objects, with what the API server's paths and RBAC rules need of them.

/**
 * A kind. The core group is the empty string.
 * @param {string} group
 * @param {string} version
 * @param {string} plural
 * @param {string} kind
 * @param {'Namespaced' | 'Cluster'} [scope]
 */
export const resource = (group, version, plural, kind, scope = 'Namespaced') =>
  Object.freeze({ group, version, plural, kind, scope });

/** The text of `apiVersion`: `v1` or `apps/v1`. */
export const apiVersion = ({ group, version }) => (group === '' ? version : `${group}/${version}`);

/** The beginning of an object of this kind: `apiVersion`, `kind` and `metadata.name`. */
export const object = (of, name) => ({ apiVersion: apiVersion(of), kind: of.kind, metadata: { name } });

/** Whether an object is of this kind. */
export const isOf = (of, candidate) => candidate.kind === of.kind && candidate.apiVersion === apiVersion(of);

export const CONFIG_MAP = resource('', 'v1', 'configmaps', 'ConfigMap');
export const SECRET = resource('', 'v1', 'secrets', 'Secret');
export const SERVICE = resource('', 'v1', 'services', 'Service');
export const SERVICE_ACCOUNT = resource('', 'v1', 'serviceaccounts', 'ServiceAccount');
export const POD = resource('', 'v1', 'pods', 'Pod');
export const PERSISTENT_VOLUME_CLAIM = resource('', 'v1', 'persistentvolumeclaims', 'PersistentVolumeClaim');
export const NODE = resource('', 'v1', 'nodes', 'Node', 'Cluster');
export const NAMESPACE = resource('', 'v1', 'namespaces', 'Namespace', 'Cluster');
export const DEPLOYMENT = resource('apps', 'v1', 'deployments', 'Deployment');
export const STATEFUL_SET = resource('apps', 'v1', 'statefulsets', 'StatefulSet');
export const DAEMON_SET = resource('apps', 'v1', 'daemonsets', 'DaemonSet');
export const JOB = resource('batch', 'v1', 'jobs', 'Job');
export const CRON_JOB = resource('batch', 'v1', 'cronjobs', 'CronJob');
export const POD_DISRUPTION_BUDGET = resource('policy', 'v1', 'poddisruptionbudgets', 'PodDisruptionBudget');
export const HORIZONTAL_POD_AUTOSCALER = resource(
  'autoscaling', 'v2', 'horizontalpodautoscalers', 'HorizontalPodAutoscaler');
export const INGRESS = resource('networking.k8s.io', 'v1', 'ingresses', 'Ingress');
export const NETWORK_POLICY = resource('networking.k8s.io', 'v1', 'networkpolicies', 'NetworkPolicy');
export const ROLE = resource('rbac.authorization.k8s.io', 'v1', 'roles', 'Role');
export const ROLE_BINDING = resource('rbac.authorization.k8s.io', 'v1', 'rolebindings', 'RoleBinding');
