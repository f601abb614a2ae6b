import type { Action, Failure, KubernetesObject, Plugin } from './index.js';

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
