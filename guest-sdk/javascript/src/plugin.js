// From a plugin's description to the functions of the contract.
//
// How `reconcile` of a controller ends says what becomes of the pass: it returns, or throws InvalidError or RetryError,
// and what was decided before is carried out; any other error is a mistake in the plugin, so nothing is carried out, its
// stack goes to the log, and the host tries again with backoff.

import { Actions } from './actions.js';
import { admissionOf, describedGuard, guardsOf } from './admission.js';
import { InvalidError, RetryError, Unanswered } from './errors.js';
import { isOf } from './kinds.js';
import { log, logMistake } from './log.js';
import { Found, partsOf } from './objects.js';
import { problemOf } from './schema.js';

const CONTROLLER_FIELDS = new Set([
  'primary', 'children', 'related', 'targets', 'finalizer', 'resyncSeconds', 'crd', 'reconcile', 'finalize',
  'validate', 'defaults', 'guard',
]);

/** A resource, or a child with options. */
const child = (one) => ('resource' in one ? one : { resource: one });

const described = ({ primary, children = [], related = [], targets = [], finalizer, resyncSeconds }) => ({
  primary,
  children: children.map(child),
  related,
  targets,
  finalizer,
  resyncSeconds,
});

const check = (name, controllers) => {
  if (typeof name !== 'string') throw new TypeError('plugin: `name` must be a text');
  if (!Array.isArray(controllers) || controllers.length === 0) {
    throw new TypeError('plugin: `controllers` must be a list of at least one');
  }
  for (const controller of controllers) {
    for (const field of Object.keys(controller)) {
      if (!CONTROLLER_FIELDS.has(field)) throw new TypeError(`plugin: a controller has no field \`${field}\``);
    }
    if (typeof controller.reconcile !== 'function') {
      throw new TypeError(`plugin: the controller of ${controller.primary?.kind} has no function \`reconcile\``);
    }
  }
};

/** Makes a plugin; a component exports the result under the name `reconciler`, and its `admission`, if it has one. */
export const plugin = ({ name, version, controllers, guards: others = [] }) => {
  check(name, controllers);
  const guards = guardsOf(controllers, others);
  const manifest = {
    name,
    version,
    crds: controllers.flatMap(({ crd }) => (crd === undefined ? [] : [crd])),
    controllers: controllers.map(described),
    ...(guards.length > 0 && { admission: guards.map(describedGuard) }),
  };
  return {
    manifest,
    describe: () => JSON.stringify(manifest),
    reconcile: (desired, observed) => run(controllers, desired, observed),
    ...(guards.length > 0 && { admission: admissionOf(guards) }),
  };
};

const run = (controllers, desired, observed) => {
  const primary = JSON.parse(desired.primary);
  const controller = controllers.find(({ primary: kind }) => isOf(kind, primary));
  if (controller === undefined) return failed('retry', 'this plugin does not serve objects of that kind');
  // Of an object that is going, `finalize` undoes what was once done for it, however it looks by now.
  const problem = desired.deleting ? undefined : problemOf(primary, controller.crd);
  if (problem !== undefined) return failed('invalid', problem);
  const pass = passOf(primary, desired, observed);
  const actions = pass.actions;
  const step = desired.deleting ? (controller.finalize ?? (() => actions.release())) : controller.reconcile;
  try {
    const returned = step(pass);
    if (typeof returned?.then === 'function') {
      return failed('retry', 'the reconciler returned a promise, and nothing that could be waited for exists here');
    }
    return { actions: actions.toList() };
  } catch (error) {
    if (error instanceof Unanswered) return { actions: actions.asked() };
    const message = String(error?.message);
    if (error instanceof InvalidError) return failed('invalid', message, actions);
    if (error instanceof RetryError) return failed('retry', message, actions);
    logMistake(error);
    return failed('retry', `${error}`);
  }
};

const failed = (tag, message, actions) => ({ actions: actions?.toList() ?? [], failure: { tag, val: message } });

const passOf = (primary, desired, observed) => {
  const answers = new Map(
    observed.related.map(({ query, complete, objects }) => [query, new Found(objects.map((one) => JSON.parse(one)), complete)]),
  );
  return {
    primary,
    ...partsOf(primary),
    children: new Found(observed.children.map((one) => JSON.parse(one))),
    related: answers,
    rejected: observed.last.map(({ index, target, reason, message }) => ({
      index, kind: target?.kind.kind, name: target?.name, reason, message,
    })),
    config: JSON.parse(desired.config),
    now: new Date(desired.now),
    seed: desired.seed,
    actions: new Actions(answers),
    log,
  };
};
