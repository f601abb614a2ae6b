import type { Action, Cause, Failure, KubernetesObject, Plugin } from './index.js';

/** One pass over an object; `related` answers rules and look-ups by their names. */
export function reconcile(
  plugin: Plugin,
  primary: KubernetesObject,
  around?: {
    children?: Iterable<KubernetesObject>;
    related?: Record<string, Iterable<KubernetesObject>>;
    rejected?: object[];
    deleting?: boolean;
    config?: object;
    /** RFC 3339. */
    now?: string;
    seed?: bigint;
  },
): Outcome;

/** What the API server would ask, where it differs from a creation by somebody. */
export interface Asked {
  /** The object as it is stored: an update. */
  old?: KubernetesObject;
  operation?: 'create' | 'update' | 'delete';
  subresource?: '' | 'status' | 'scale';
  user?: string;
  groups?: string[];
  dryRun?: boolean;
  config?: object;
  /** RFC 3339. */
  now?: string;
}

/** What comes of a request. */
export function validate(plugin: Plugin, object: KubernetesObject, asked?: Asked): Verdict;

/** The object with what the plugin fills in. Throws if it changes what it has completed already. */
export function defaults(plugin: Plugin, object: KubernetesObject, asked?: Asked): KubernetesObject;

/** What the plugin says of a request, and what it logged. As text: a line for each cause. */
export interface Verdict {
  readonly allowed: boolean;
  readonly causes: Cause[];
  readonly warnings: string[];
  readonly logs: { level: string; message: string }[];
  toString(): string;
}

/** What a pass decided, and what it logged. */
export interface Outcome {
  readonly actions: Action[];
  readonly failure: Failure | undefined;
  readonly logs: { level: string; message: string }[];
  /** Objects that are applied, in order. */
  readonly applied: KubernetesObject[];
  readonly deleted: { kind: string; name: string }[];
  /** None if it stays as it is. */
  readonly status: any;
  readonly events: { severity: string; reason: string; message: string }[];
  /** Look-ups that have no answer. */
  readonly asked: { id: string; name?: string; namespace?: string; options: string }[];
  readonly released: boolean;
}
