/// <reference path="./contract/plugin.d.ts" />

/**
 * Write a Kubernetes operator as functions, and build it into a WebAssembly component:
 *
 * ```js
 * import { CONFIG_MAP, object, plugin, resource } from 'pilothouse';
 *
 * export default plugin({
 *   name: 'greeter',
 *   version: '0.1.0',
 *   controllers: [{
 *     primary: resource('example.com', 'v1', 'greetings', 'Greeting'),
 *     children: [CONFIG_MAP],
 *     reconcile({ name, spec, actions }) {
 *       actions.apply({ ...object(CONFIG_MAP, name), data: { text: spec.text } });
 *       actions.setStatus({ greeted: true });
 *     },
 *   }],
 * });
 * ```
 *
 * `reconcile` is called with what there is, not with what happened: it says what shall be there, and the host finds out
 * what has to be written. It is a plain function, as there is nothing to wait for: no network, no files, no timers that
 * would fire. `Date` and `Math.random` are functions of the pass.
 */

import type { Cause } from 'pilothouse:operator/admission@0.1.0';
import type { admission, reconciler } from 'pilothouse:operator/guarding-plugin@0.1.0';
import type { Action, Failure } from 'pilothouse:operator/types@0.1.0';

/** A Kubernetes object. */
export interface KubernetesObject {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; uid?: string; labels?: Record<string, string>; [field: string]: unknown };
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- objects of all kinds, checked by the API server
  [field: string]: any;
}

/** A kind, with what the API server's paths and RBAC rules need of it. The core group is the empty string. */
export interface Resource {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  readonly scope: 'Namespaced' | 'Cluster';
}

/** How much of each object is watched and shown. */
export type Projection = 'full' | 'metadata' | { fields: string[] };

/** A kind that the plugin creates and owns, with options of the manifest. */
export interface Child {
  resource: Resource;
  projection?: Projection;
  createOnly?: boolean;
  forceConflicts?: boolean;
  namespaces?: 'own' | 'any';
  updateStrategy?: {
    method?: 'OnDelete' | 'Recreate' | 'InPlace' | 'RollingRecreate' | 'RollingInPlace';
    statusChecks?: { conditions?: { type: string; status?: string; reason?: string }[] };
    maxUnavailable?: number | string;
  };
}

/** A kind that it reads without owning. The selector may use `$(name)`, `$(namespace)` and `$(uid)` of the primary. */
export interface Related {
  name: string;
  resource: Resource;
  selector?: string;
  fieldSelector?: string;
  projection?: Projection;
}

/** A kind that it changes or deletes without owning. */
export interface Target {
  resource: Resource;
  verbs: ('patch' | 'patch-status' | 'patch-scale' | 'delete')[];
}

/** Which kind is reconciled, what may be touched for its objects, and how. */
export interface Controller {
  primary: Resource;
  children?: (Resource | Child)[];
  related?: Related[];
  targets?: Target[];
  /** `domain/name`: `finalize` runs before an object goes. Without one, deletion is garbage collection alone. */
  finalizer?: string;
  /** Seconds between passes over an unchanged object. */
  resyncSeconds?: number;
  /** A whole CustomResourceDefinition, if the plugin brings its kind along: the host's own condition is for such kinds. */
  crd?: KubernetesObject;
  /** One pass over an object that is not being deleted. */
  reconcile(pass: Pass): void;
  /** One pass over one that is. Left out, the object is released at once; else `actions.release()` is for it to say. */
  finalize?(pass: Pass): void;
  /**
   * May this object be stored, or on deletion: may it go? `refuse` says what is wrong; an InvalidError, whose text begins
   * with the field, does so as well, so that one function checks here and in `reconcile`. Objects may be older than a
   * check, or the cluster without webhooks, so `reconcile` checks as well.
   */
  validate?(review: Review): void;
  /**
   * Fills in what the user left out, by editing `spec`, before the object is checked and stored. Called again with its own
   * result it must change nothing, as the API server may call twice. `metadata` and `status` may not change. Constant
   * defaults are better said in the schema.
   */
  defaults?(request: AdmissionRequest): void;
  /** Which requests `validate` and `defaults` are asked about, where the defaults do not fit. */
  guard?: GuardOptions;
}

/** Which requests a kind's `validate` and `defaults` are asked about, and what becomes of them without an answer. */
export interface GuardOptions {
  /** Creations and changes unless said otherwise. Deletions are only checked. */
  operations?: ('create' | 'update' | 'delete')[];
  /** Subresources that are checked besides. With `scale`, as `kubectl scale` writes it, `object` is a `Scale`. */
  subresources?: ('status' | 'scale')[];
  /** Requests fail while the plugin does not answer, unless this is `Ignore`: then they go on unchecked. */
  failurePolicy?: 'Fail' | 'Ignore';
  /** Seconds after which the API server gives up, 1 to 30; 10 unless said otherwise. */
  timeoutSeconds?: number;
  /** `Exact`: requests for other versions of the kind do not count. Else they are shown in this one. */
  matchPolicy?: 'Equivalent' | 'Exact';
  /** `IfNeeded`: `defaults` is called once more when another webhook has changed the object since. */
  reinvocation?: 'Never' | 'IfNeeded';
  /** Only objects with these labels: `matchLabels`, `matchExpressions`. */
  objectSelector?: object;
  /** Only requests for which all of these CEL expressions hold. */
  matchConditions?: { name: string; expression: string }[];
}

/** A kind that the plugin guards and does not reconcile. Kinds of others are guarded by the administrator's grant. */
export interface Guard extends GuardOptions {
  resource: Resource;
  validate?(review: Review): void;
  defaults?(request: AdmissionRequest): void;
}

/** A request to the API server, about an object that is not stored yet. */
export interface AdmissionRequest {
  /** The object as it would be stored; on deletion, as it is. */
  readonly object: KubernetesObject;
  /**
   * The object as it is stored; none on creation. None also if today's schema would refuse it, as nothing can be said of it
   * then.
   */
  readonly old: KubernetesObject | undefined;
  readonly spec: any;
  readonly status: any;
  readonly metadata: KubernetesObject['metadata'];
  /** None while it is to be generated. */
  readonly name: string | undefined;
  /** None for cluster-scoped kinds. */
  readonly namespace: string | undefined;
  readonly uid: string | undefined;
  readonly labels: Record<string, string>;
  readonly annotations: Record<string, string>;
  readonly operation: 'create' | 'update' | 'delete';
  readonly subresource: '' | 'status' | 'scale';
  /** Who asks. */
  readonly user: string;
  readonly groups: string[];
  /** Nothing will be stored. */
  readonly dryRun: boolean;
  /** The plugin's configuration. */
  readonly config: any;
  readonly now: Date;
  readonly log: Log;
}

/** In which way a field is wrong, in the API server's words. */
export type Reason =
  | 'FieldValueInvalid'
  | 'FieldValueRequired'
  | 'FieldValueForbidden'
  | 'FieldValueNotSupported'
  | 'FieldValueDuplicate'
  | 'FieldValueNotFound'
  | 'FieldValueTooLong'
  | 'FieldValueTooMany'
  | 'FieldValueTypeInvalid';

/** A request, and the answer to it: allowed, unless something is refused. */
export interface Review extends AdmissionRequest {
  /** This field, `spec.ports[0].name`, is wrong; the message says what would be right. */
  refuse(field: string, message: string, reason?: Reason): void;
  /** A line that the user sees in any case. */
  warn(text: string): void;
}

/** Objects that can be searched, in the order of the contract. */
export interface Found extends ReadonlyArray<KubernetesObject> {
  /** False while the host cannot know all of them yet, or cut the list at the limit of the query. */
  readonly complete: boolean;
  of(resource: Resource): KubernetesObject[];
  named(resource: Resource, name: string): KubernetesObject | undefined;
}

/** What a pass knows, and its `actions`. */
export interface Pass {
  readonly primary: KubernetesObject;
  readonly spec: any;
  readonly status: any;
  readonly metadata: KubernetesObject['metadata'];
  readonly name: string;
  /** None for cluster-scoped kinds. */
  readonly namespace: string | undefined;
  readonly uid: string;
  readonly labels: Record<string, string>;
  readonly annotations: Record<string, string>;
  /** Objects of the declared child kinds that the primary owns. */
  readonly children: Found;
  /** Answers, by names of rules and look-ups. */
  readonly related: ReadonlyMap<string, Found>;
  /** Actions of the previous pass that the API server refused. */
  readonly rejected: { index: number; kind?: string; name?: string; reason: string; message: string }[];
  /** The plugin's configuration. */
  readonly config: any;
  readonly now: Date;
  readonly seed: bigint;
  readonly actions: Actions;
  readonly log: Log;
}

/** What a pass may decide; carried out in this order, after the pass. What an option means stands in `operator.wit`. */
export interface Actions {
  /** Creates a child, or brings it to this state: the fields that the plugin decides and no others. */
  apply(
    object: KubernetesObject,
    options?: { createOnly?: boolean; onImmutable?: 'refuse' | 'recreate-orphan' | 'recreate' },
  ): void;
  /** Deletes a child, or an object of a kind among the manifest's targets. */
  delete(
    resource: Resource,
    name: string,
    options?: {
      namespace?: string;
      uid?: string;
      propagation?: 'background' | 'foreground' | 'orphan';
      gracePeriodSeconds?: number;
    },
  ): void;
  /** Changes an object of a kind among the manifest's targets, by a JSON merge patch. */
  patchTarget(
    resource: Resource,
    name: string,
    patch: object,
    options?: { namespace?: string; uid?: string; subresource?: 'status' | 'scale' },
  ): void;
  /** Creates or completes a Secret with values that the host draws and no plugin sees. */
  generateSecret(
    name: string,
    template: {
      literals?: Record<string, string>;
      random?: Record<string, { length: number; alphabet?: 'alphanumeric' | 'hexadecimal' | 'base64url' }>;
      composed?: Record<string, string>;
      labels?: Record<string, string>;
      annotations?: Record<string, string>;
      type?: string;
    },
  ): void;
  /** The whole status of the primary; conditions are merged by `type`. At most once in a pass. */
  setStatus(status: object): void;
  /** Records a Kubernetes Event about the primary. */
  event(reason: string, message: string, options?: { warning?: boolean }): void;
  /** Runs again after this time at the latest, 0.1 s to a day. */
  requeueAfter(seconds: number): void;
  /** Deletion is finished: the host removes the finalizer. */
  release(): void;
  /** An action that the contract does not know as a case of its own. */
  extension(name: string, body: unknown): void;
  /**
   * Objects that the plugin does not own. While there is no answer the pass ends here, and the host calls again at once
   * with it; what was decided before is decided anew. At most 5 can follow one another.
   */
  lookUp(
    id: string,
    resource: Resource,
    query?: { name?: string; namespace?: string; selector?: string; limit?: number },
  ): Found;
}

/** Lines of the host's log, under the pass. */
export interface Log {
  debug(...parts: unknown[]): void;
  info(...parts: unknown[]): void;
  warn(...parts: unknown[]): void;
  error(...parts: unknown[]): void;
}

/** The object is wrong and its user must change it. The text names the field and what would be right. */
export class InvalidError extends Error {}
/** Something else is not as it should be: try again, each time later. */
export class RetryError extends Error {}

/** A plugin: the default export of its file. */
export type Plugin = typeof reconciler & { readonly manifest: object; readonly admission?: typeof admission };

/** Makes a plugin. */
export function plugin(of: { name: string; version: string; controllers: Controller[]; guards?: Guard[] }): Plugin;

/** A kind. */
export function resource(
  group: string,
  version: string,
  plural: string,
  kind: string,
  scope?: 'Namespaced' | 'Cluster',
): Resource;
/** The beginning of an object of this kind. */
export function object(of: Resource, name: string): KubernetesObject;
/** The text of `apiVersion`. */
export function apiVersion(of: Resource): string;
/** Whether an object is of this kind. */
export function isOf(of: Resource, candidate: KubernetesObject): boolean;

export const CONFIG_MAP: Resource;
export const SECRET: Resource;
export const SERVICE: Resource;
export const SERVICE_ACCOUNT: Resource;
export const POD: Resource;
export const PERSISTENT_VOLUME_CLAIM: Resource;
export const NODE: Resource;
export const NAMESPACE: Resource;
export const DEPLOYMENT: Resource;
export const STATEFUL_SET: Resource;
export const DAEMON_SET: Resource;
export const JOB: Resource;
export const CRON_JOB: Resource;
export const POD_DISRUPTION_BUDGET: Resource;
export const HORIZONTAL_POD_AUTOSCALER: Resource;
export const INGRESS: Resource;
export const NETWORK_POLICY: Resource;
export const ROLE: Resource;
export const ROLE_BINDING: Resource;

export type { Action, Cause, Failure };
