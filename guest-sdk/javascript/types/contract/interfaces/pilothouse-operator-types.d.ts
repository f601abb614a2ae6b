declare module 'pilothouse:operator/types@0.1.0' {
  /**
   * A Kubernetes object as JSON text (UTF-8), without `metadata.managedFields`.
   */
  export type Object = string;
  /**
   * Group, version and kind of an object. The core group is the empty string.
   */
  export interface Kind {
    /**
     * API group, for example `apps`; `""` is the core group.
     */
    group: string,
    /**
     * API version within the group, for example `v1`.
     */
    version: string,
    /**
     * Kind in upper camel case, for example `StatefulSet`.
     */
    kind: string,
  }
  /**
   * Names one object.
   */
  export interface Reference {
    /**
     * What it is. Must be declared in the manifest.
     */
    kind: Kind,
    /**
     * Its namespace; none means the namespace of the primary (or cluster scope, for cluster-scoped kinds). For a
     * primary without a namespace it must be named.
     */
    namespace?: string,
    /**
     * `metadata.name`.
     */
    name: string,
    /**
     * `metadata.uid`, if the action is meant for that very object and not for a later one of the same name.
     */
    uid?: string,
  }
  /**
   * What the user wants: the object being reconciled, and the pass's only clock and randomness.
   */
  export interface Desired {
    /**
     * The object being reconciled, as it was before this pass. Its `apiVersion` and `kind` say which controller of
     * the manifest is meant.
     */
    primary: Object,
    /**
     * True when `metadata.deletionTimestamp` is set and this plugin's finalizer is still there: undo what
     * garbage collection would not, then answer `release`. Whatever the spec has become, the object must be able to
     * go: where that cannot be undone without a field, fail `invalid` and name the field and the finalizer.
     */
    deleting: boolean,
    /**
     * The plugin's configuration as a JSON object, `{}` if the administrator gave none.
     */
    config: string,
    /**
     * Time of this pass, RFC 3339 in UTC. It is the only clock that a plugin has.
     */
    now: string,
    /**
     * The only randomness that a plugin has: fresh in each pass, so never use it for names of children.
     */
    seed: bigint,
  }
  /**
   * The objects found for one query. "Asked, none found" (an empty list) differs from "not asked" (no answer).
   */
  export interface Answer {
    /**
     * Name of the rule in the manifest, or `id` of the `look-up`.
     */
    query: string,
    /**
     * False while the host cannot know all objects yet (its watch is still being filled) or cut the list at
     * the limit of the query.
     */
    complete: boolean,
    /**
     * The objects, by namespace and name. Secrets are blanked as in `observed.children`, unless granted.
     */
    objects: Array<Object>,
  }
  /**
   * One action of the previous pass that did not happen.
   */
  export interface Rejected {
    /**
     * Position of the action in that pass's `outcome.actions`, from 0.
     */
    index: number,
    /**
     * The object that it was for, if it was for one.
     */
    target?: Reference,
    /**
     * One word from a closed list: `Conflict` (another field manager owns a field), `Immutable` (the field
     * cannot change and the policy is to refuse), `Invalid` (the API server refused the object), `Forbidden`
     * (RBAC or a quota), `NotOwned` (an object of that name exists and is not ours), `Terminating` (the
     * namespace or the old object is going away), `Gone` (the UID precondition failed), `Unavailable` (the
     * API server could not be reached or was too busy), `TooLarge` (over the API server's size limit).
     */
    reason: string,
    /**
     * For people.
     */
    message: string,
  }
  /**
   * The cluster as the host saw it when the pass began: one snapshot, consistent with the host's own last writes.
   */
  export interface Observed {
    /**
     * Objects of the declared child kinds that this primary owns (controller reference), in the order of the
     * manifest, then by namespace and name; also those that are being deleted (`metadata.deletionTimestamp`).
     * Values of Secrets are blanked: `data` keeps its keys, each with the value `""`, and
     * `metadata.annotations["pilothouse.dev/blanked"]` is `"true"`. An object with that annotation cannot be
     * applied.
     */
    children: Array<Object>,
    /**
     * Objects that the primary does not own: one answer for each rule in the manifest's `related` and for each
     * `look-up` of this pass.
     */
    related: Array<Answer>,
    /**
     * Actions of the previous pass that failed at the API server. Empty after a pass in which all succeeded, whose
     * outcome was refused as a whole, or that trapped; and after a restart of the host. The previous pass may have
     * been one of an older version of the plugin.
     */
    last: Array<Rejected>,
  }
  /**
   * One child as the plugin wants it.
   */
  export interface Apply {
    /**
     * The fields that this plugin wants, and no others: apiVersion, kind, metadata.name, and what it decides.
     * The host adds the namespace of the primary, the controller reference and the label
     * `pilothouse.dev/managed`. Fields that an earlier pass set and this one leaves out are removed. Of `metadata`
     * only name, namespace, labels, annotations and finalizers may be set; `status` may not. One object may be
     * applied or generated once in an outcome, and the primary itself not at all.
     */
    object: Object,
    /**
     * JSON object: `createOnly` (boolean, default as the manifest's child says: never touch the object again
     * once it exists), `onImmutable` (`refuse`, `recreate-orphan` or `recreate`, default `refuse`: what to do
     * when the API server says that a changed field is immutable), `after` (positions of earlier writes in
     * `outcome.actions`; default none: if one of them fails or waits, this one is not tried in this pass). The
     * manifest's `updateStrategy` decides whether and when an object that exists follows.
     */
    options: string,
  }
  /**
   * One object to delete.
   */
  export interface Deletion {
    /**
     * Which one. If `uid` is none, the host adds the UID that the snapshot showed; an object that the snapshot
     * did not show is not deleted. Of a kind that is among the children and not among the targets, only the
     * primary's own.
     */
    target: Reference,
    /**
     * JSON object: `propagation` (`background`, `foreground` or `orphan`, default `background`),
     * `gracePeriodSeconds` (integer, default the object's own), `after` as in apply.
     */
    options: string,
  }
  /**
   * A change to an object that the plugin does not own.
   */
  export interface TargetPatch {
    /**
     * Which one.
     */
    target: Reference,
    /**
     * JSON merge patch (RFC 7386). It must not touch `metadata` beyond `labels` and `annotations`.
     */
    patch: string,
    /**
     * JSON object: `subresource` (`status` or `scale`, default none), `after` as in apply.
     */
    options: string,
  }
  /**
   * A key of a Secret and its text.
   */
  export interface KeyValue {
    /**
     * Key of the Secret's `data`.
     */
    key: string,
    /**
     * Text; the host encodes it.
     */
    value: string,
  }
  /**
   * Characters of a random key. All are safe in a URI, a shell word and a libpq connection string.
   * # Variants
   * 
   * ## `"alphanumeric"`
   * 
   * `A-Z a-z 0-9`: 5.95 bits a character.
   * ## `"hexadecimal"`
   * 
   * `0-9 a-f`: 4 bits a character.
   * ## `"base64url"`
   * 
   * `A-Z a-z 0-9 - _`: 6 bits a character.
   */
  export type Alphabet = 'alphanumeric' | 'hexadecimal' | 'base64url';
  /**
   * A key of a Secret that is drawn by the host from its operating system's secure source.
   */
  export interface RandomKey {
    /**
     * Key of the Secret's `data`.
     */
    key: string,
    /**
     * Number of characters, 16 to 256.
     */
    length: number,
    /**
     * Characters to draw from.
     */
    alphabet: Alphabet,
  }
  /**
   * A Secret whose random values the host draws once and keeps. All values together are at most 1 MiB. Keys that a
   * later template leaves out stay.
   */
  export interface SecretTemplate {
    /**
     * Name of the Secret, in the namespace of the primary, which owns it.
     */
    name: string,
    /**
     * Keys that the plugin decides, each with its value. A changed value is written.
     */
    literals: Array<KeyValue>,
    /**
     * Keys that the host fills with random characters, once: a key that the Secret has already is kept.
     */
    random: Array<RandomKey>,
    /**
     * Keys made of others: `$(key)` stands for the value of a literal or random key, `$$` for a dollar sign.
     * They follow the values that they are made of.
     */
    composed: Array<KeyValue>,
    /**
     * JSON object: `labels`, `annotations` (objects of strings), `type` (default `Opaque`), `after` as in apply.
     */
    options: string,
  }
  /**
   * Type of an Event.
   * # Variants
   * 
   * ## `"normal"`
   * 
   * ## `"warning"`
   */
  export type Severity = 'normal' | 'warning';
  /**
   * A Kubernetes Event about the primary.
   */
  export interface Event {
    /**
     * `Normal` or `Warning`.
     */
    severity: Severity,
    /**
     * One word in upper camel case, for machines, at most 128 characters.
     */
    reason: string,
    /**
     * For people, at most 1,024 bytes; the host cuts the rest.
     */
    message: string,
  }
  /**
   * A question for objects that the primary does not own, of a kind in the manifest's `related`. Each object in the
   * answer shows as much as that rule's projection says. The question is remembered until the next pass: a change of
   * an object that it matches, or matched, wakes the primary. (For this the host watches the metadata of the kind
   * while any primary asks for it.) Answers that together would not fit into the plugin's memory fail the pass.
   */
  export interface Query {
    /**
     * Name that the answer will bear, 1 to 128 characters. Must differ from the names of the manifest's `related`
     * rules and from the other ids of the round.
     */
    id: string,
    /**
     * Kind of the objects.
     */
    kind: Kind,
    /**
     * Namespace; none means that of the primary. Another one only by grant.
     */
    namespace?: string,
    /**
     * A single object by name, whatever the selector; none: all that the selector matches.
     */
    name?: string,
    /**
     * JSON object: `labelSelector` (string in the syntax of kubectl), `limit` (integer, default 500, at most 5,000).
     */
    options: string,
  }
  /**
   * An action that this version of the contract does not know as a case of its own.
   */
  export interface Extension {
    /**
     * Name, in the style `example.com/thing`; names without a domain are the host's.
     */
    name: string,
    /**
     * JSON.
     */
    body: string,
  }
  /**
   * One thing that the host shall do. Actions are carried out in the order of the list; one that fails does not stop
   * the others, but for those that name it in their option `after`.
   */
  export type Action = ActionApply | ActionDelete | ActionPatchTarget | ActionGenerateSecret | ActionSetStatus | ActionRecordEvent | ActionLookUp | ActionRequeueAfter | ActionRelease | ActionExtension;
  /**
   * Create one child, or bring it to this state (server-side apply).
   */
  export interface ActionApply {
    tag: 'apply',
    val: Apply,
  }
  /**
   * Delete one child, or one object of a kind in the manifest's `targets`.
   */
  export interface ActionDelete {
    tag: 'delete',
    val: Deletion,
  }
  /**
   * Change labels, annotations or fields of an object of a kind in the manifest's `targets`.
   */
  export interface ActionPatchTarget {
    tag: 'patch-target',
    val: TargetPatch,
  }
  /**
   * Create or complete a Secret with random values that no plugin ever sees. The manifest must have Secret among
   * the children.
   */
  export interface ActionGenerateSecret {
    tag: 'generate-secret',
    val: SecretTemplate,
  }
  /**
   * The status of the primary as a JSON object: the whole of it, so a field left out is removed. `conditions`
   * are merged by `type`: types that it does not name stay, one with `"status": null` is removed, `Reconciled`
   * is the host's own. Each needs `type`, `status` (`True`, `False` or `Unknown`) and `reason`; at most 64. The
   * host keeps `observedGeneration` and each condition's `lastTransitionTime` right, and writes only what
   * changed. Without this action, or with `release`, the status stays as it is. At most one per pass, at most
   * 1 MiB.
   */
  export interface ActionSetStatus {
    tag: 'set-status',
    val: string,
  }
  /**
   * Record a Kubernetes Event. Repeats are counted, not written again. At most 16 per pass.
   */
  export interface ActionRecordEvent {
    tag: 'record-event',
    val: Event,
  }
  /**
   * Ask for more related objects. The host calls again at once with the answers and forgets the other actions
   * of this outcome. Answers stay until the end of the pass; an id that is asked again is answered anew. At most
   * 16 in a round and 5 rounds in a pass: a sixth outcome that still asks is refused.
   */
  export interface ActionLookUp {
    tag: 'look-up',
    val: Query,
  }
  /**
   * Reconcile again after this many milliseconds, at the latest; 100 to 86,400,000 (a day), what is outside is
   * brought to the nearer bound. The shortest of several counts. Without effect if the outcome has a `failure` or
   * an action fails: then backoff says when.
   */
  export interface ActionRequeueAfter {
    tag: 'requeue-after',
    val: bigint,
  }
  /**
   * Deletion is finished: the host removes the plugin's finalizer, once all other actions of the outcome have
   * succeeded. Only when `desired.deleting`; without effect beside a `failure`.
   */
  export interface ActionRelease {
    tag: 'release',
  }
  /**
   * The door for what comes later. An unknown name refuses the whole outcome, by name.
   */
  export interface ActionExtension {
    tag: 'extension',
    val: Extension,
  }
  /**
   * Why a pass could not reach its goal. Actions of the same outcome are carried out all the same.
   */
  export type Failure = FailureInvalid | FailureRetry;
  /**
   * The primary is wrong and its user must change it: no retry until it, a child or a related object changes, or
   * the resync. The text names the field.
   */
  export interface FailureInvalid {
    tag: 'invalid',
    val: string,
  }
  /**
   * Something else is wrong: try again with backoff, or at once when something changes.
   */
  export interface FailureRetry {
    tag: 'retry',
    val: string,
  }
  /**
   * What a pass decided.
   */
  export interface Outcome {
    /**
     * What to do, in order.
     */
    actions: Array<Action>,
    /**
     * Set when the pass could not reach its goal; it may still set a status and record events.
     */
    failure?: Failure,
  }
}
