/// <reference path="./pilothouse-operator-types.d.ts" />
declare module 'pilothouse:operator/reconciler@0.1.0' {
  /**
   * The manifest as JSON text, in the form of `manifest.schema.json`. Called once when the plugin is loaded;
   * must answer the same each time.
   */
  export function describe(): string;
  /**
   * One pass over one object. Pure: the same arguments give the same outcome, always. It must not depend on
   * memory of earlier calls: each call runs in a fresh instance.
   */
  export function reconcile(desired: Desired, observed: Observed): Outcome;
  export type Desired = import('pilothouse:operator/types@0.1.0').Desired;
  export type Observed = import('pilothouse:operator/types@0.1.0').Observed;
  export type Outcome = import('pilothouse:operator/types@0.1.0').Outcome;
}
