/// <reference path="./interfaces/pilothouse-operator-admission.d.ts" />
/// <reference path="./interfaces/pilothouse-operator-log.d.ts" />
/// <reference path="./interfaces/pilothouse-operator-reconciler.d.ts" />
/// <reference path="./interfaces/pilothouse-operator-types.d.ts" />
declare module 'pilothouse:operator/guarding-plugin@0.1.0' {
  export type * as PilothouseOperatorLog010 from 'pilothouse:operator/log@0.1.0'; // import pilothouse:operator/log@0.1.0
  export type * as PilothouseOperatorTypes010 from 'pilothouse:operator/types@0.1.0'; // import pilothouse:operator/types@0.1.0
  export * as admission from 'pilothouse:operator/admission@0.1.0'; // export pilothouse:operator/admission@0.1.0
  export * as reconciler from 'pilothouse:operator/reconciler@0.1.0'; // export pilothouse:operator/reconciler@0.1.0
}
