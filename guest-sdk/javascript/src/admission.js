// Requests that the API server asks about: from a guard's `validate` and `defaults` to the two functions of the contract.
//
// `validate` refuses by `refuse(field, message)`, or by an InvalidError as a pass does, so that one function checks in both.
// Any other error is a mistake in the plugin: its stack goes to the log and the call traps, so that the guard's
// `failurePolicy` decides. A verdict has no words for it.

import { InvalidError } from './errors.js';
import { isOf } from './kinds.js';
import { log, logMistake } from './log.js';
import { partsOf } from './objects.js';
import { problemOf } from './schema.js';

const FUNCTIONS = ['validate', 'defaults'];
const OPTIONS = new Set([
  'operations', 'subresources', 'failurePolicy', 'timeoutSeconds', 'matchPolicy', 'reinvocation', 'objectSelector',
  'matchConditions',
]);

/** How a text begins that names a field. */
const FIELD = /^((?:spec|metadata|data)\b[^\s:]*): (.+)$/s;

/** Guards of controllers that have one of the functions, and those of other kinds. */
export const guardsOf = (controllers, others) => {
  const own = controllers
    .filter((one) => one.guard !== undefined || FUNCTIONS.some((name) => one[name] !== undefined))
    .map(({ primary: resource, crd, validate, defaults, guard = {} }) => ({ resource, crd, validate, defaults, options: guard }));
  const named = others.map(({ resource, validate, defaults, ...options }) => ({ resource, validate, defaults, options }));
  const guards = [...own, ...named];
  guards.forEach(check);
  const scaled = guards.filter(asksForScales).map(({ resource }) => resource.kind);
  if (scaled.length > 1) {
    throw new TypeError(`plugin: ${scaled.join(' and ')} guard \`scale\`: one kind can, as a scale does not say of which kind it is`);
  }
  return guards;
};

const asksForScales = ({ options }) => options.subresources?.includes('scale') ?? false;

const check = ({ resource, options, ...functions }) => {
  const kind = resource?.kind;
  for (const field of Object.keys(options)) {
    if (!OPTIONS.has(field)) throw new TypeError(`plugin: the guard of ${kind} has no field \`${field}\``);
  }
  const given = FUNCTIONS.filter((name) => functions[name] !== undefined);
  for (const name of given) {
    if (typeof functions[name] !== 'function') throw new TypeError(`plugin: \`${name}\` of ${kind} must be a function`);
  }
  if (given.length === 0) throw new TypeError(`plugin: the guard of ${kind} has neither \`validate\` nor \`defaults\``);
};

/** As the manifest says it; what is as by default is left out. */
export const describedGuard = ({ resource, validate, defaults, options }) => ({
  resource,
  ...options,
  ...(validate === undefined && { validates: false }),
  ...(defaults !== undefined && { defaults: true }),
});

/** The contract's interface `admission`. */
export const admissionOf = (guards) => ({
  validate: (request) => validate(guards, request),
  defaultFields: (request) => defaultFields(guards, request),
});

const validate = (guards, request) => {
  const { guard, review, problem } = reviewOf(guards, request);
  const causes = [];
  const warnings = [];
  // Where the definition in the cluster is another one than the plugin's, `validate` need not be ready for it.
  if (problem !== undefined && review.operation !== 'delete') {
    causes.push(causeOf(problem));
  } else if (guard?.validate !== undefined) {
    const refuse = (field, message, reason = 'FieldValueInvalid') => {
      causes.push({ field, reason, message });
    };
    const warn = (text) => {
      warnings.push(String(text));
    };
    try {
      called('validate', () => guard.validate({ ...review, refuse, warn }));
    } catch (error) {
      // What was stored before the schema was as it is must be able to go: `validate` need not be ready for it.
      if (error instanceof InvalidError) causes.push(causeOf(error.message));
      else if (problem === undefined) throw told(error);
    }
  }
  return { allowed: causes.length === 0, causes, warnings };
};

const defaultFields = (guards, request) => {
  const { guard, review, problem } = reviewOf(guards, request);
  if (guard?.defaults === undefined) return request.new;
  const { object, spec } = review;
  try {
    called('defaults', () => guard.defaults(review));
  } catch (error) {
    // Defaults come before the API server's own checks, which say better what is wrong.
    if (problem !== undefined) return request.new;
    throw told(error);
  }
  // What has no spec gets one by what is filled in, and no empty one.
  if (object.spec == null && Object.keys(spec).length > 0) object.spec = spec;
  return JSON.stringify(object);
};

/** Calls a plugin's function, which answers by what it was given and not by what it returns. */
const called = (name, run) => {
  const returned = run();
  if (typeof returned?.then === 'function') {
    throw new TypeError(`\`${name}\` returned a promise, and nothing that could be waited for exists here`);
  }
  if (returned !== undefined) {
    const right = name === 'validate' ? '`refuse(field, message)`' : 'an edit of `spec`';
    throw new TypeError(`\`${name}\` returned something, which is nobody's: ${right} would be right`);
  }
};

/** The error, after the log has its stack. */
const told = (error) => {
  logMistake(error);
  return error;
};

const causeOf = (text) => {
  const [, field, message] = FIELD.exec(text) ?? [text, '', text];
  // The host takes no cause without words.
  return { field, reason: 'FieldValueInvalid', message: message || 'is not allowed' };
};

/** What is asked, of whom, and what the schema has against the object. */
const reviewOf = (guards, request) => {
  const parse = (text) => (text === undefined ? undefined : JSON.parse(text));
  const [fresh, stored] = [parse(request.new), parse(request.old)];
  const object = fresh ?? stored;
  // A scale names no kind, and one guard alone asks for scales.
  const guard =
    guards.find(({ resource }) => isOf(resource, object)) ??
    (request.subresource === 'scale' ? guards.find(asksForScales) : undefined);
  const wrong = (one) => (guard !== undefined && isOf(guard.resource, one) ? problemOf(one, guard.crd) : undefined);
  // Stored before the schema was as it is: the plugin need not be ready for it.
  const old = fresh !== undefined && stored !== undefined && wrong(stored) !== undefined ? undefined : stored;
  const review = {
    object,
    old,
    ...partsOf(object),
    operation: request.operation,
    subresource: request.subresource,
    user: request.user,
    groups: request.groups,
    dryRun: request.dryRun,
    config: JSON.parse(request.config),
    now: new Date(request.now),
    log,
  };
  return { guard, review, problem: request.subresource === '' ? wrong(object) : undefined };
};
