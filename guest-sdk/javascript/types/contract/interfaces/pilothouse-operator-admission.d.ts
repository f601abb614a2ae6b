/// <reference path="./pilothouse-operator-types.d.ts" />
declare module 'pilothouse:operator/admission@0.1.0' {
  /**
   * May this object be stored?
   */
  export function validate(request: AdmissionRequest): Verdict;
  /**
   * The object `request.new` with defaults filled in. Must be idempotent. `apiVersion`, `kind`, `metadata` and
   * `status` must come back as they are: a change of one of them is an error of the call.
   */
  export function defaultFields(request: AdmissionRequest): Object;
  export type Object = import('pilothouse:operator/types@0.1.0').Object;
  /**
   * What the user is doing.
   * # Variants
   * 
   * ## `"create"`
   * 
   * ## `"update"`
   * 
   * ## `"delete"`
   */
  export type Operation = 'create' | 'update' | 'delete';
  /**
   * One request to the API server.
   */
  export interface AdmissionRequest {
    /**
     * What the user is doing.
     */
    operation: Operation,
    /**
     * The object as it would be stored; none for `delete`.
     */
    'new'?: Object,
    /**
     * The object as it is stored; none for `create`.
     */
    old?: Object,
    /**
     * Who asks: the user name, as authenticated.
     */
    user: string,
    /**
     * Groups of the user.
     */
    groups: Array<string>,
    /**
     * True when nothing will be stored.
     */
    dryRun: boolean,
    /**
     * Empty, `status` or `scale`.
     */
    subresource: string,
    /**
     * As in `desired.config`.
     */
    config: string,
    /**
     * As in `desired.now`.
     */
    now: string,
  }
  /**
   * One thing that is wrong with an object.
   */
  export interface Cause {
    /**
     * Path of the field, for example `spec.replicas`.
     */
    field: string,
    /**
     * One of the API server's words, for example `FieldValueInvalid`, `FieldValueRequired`, `FieldValueForbidden`.
     */
    reason: string,
    /**
     * For people: what would be right.
     */
    message: string,
  }
  /**
   * The answer to one request.
   */
  export interface Verdict {
    /**
     * Whether the request may go on. Must be true exactly when `causes` is empty.
     */
    allowed: boolean,
    /**
     * What is wrong, one for each field.
     */
    causes: Array<Cause>,
    /**
     * Shown to the user whether allowed or not, each at most 256 characters.
     */
    warnings: Array<string>,
  }
}
