// Runs a plugin in Node, with plain values: no WebAssembly, no host, no cluster.
//
// What it does not pretend: defaults and refusals of the API server, and the host's check of actions against the manifest,
// which `pilothouse render` does with the component.

import { sendTo } from './log.js';

const texts = (objects) => [...objects].map((one) => JSON.stringify(one));

/** One pass over an object; `related` answers rules and look-ups by their names. */
export const reconcile = (
  plugin,
  primary,
  { children = [], related = {}, rejected = [], deleting = false, config = {}, now = '2025-01-01T00:00:00Z', seed = 0n } = {},
) => {
  const desired = { primary: JSON.stringify(primary), deleting, config: JSON.stringify(config), now, seed };
  const answers = Object.entries(related).map(([query, objects]) => ({ query, complete: true, objects: texts(objects) }));
  const logs = [];
  const outcome = logging(logs, () => plugin.reconcile(desired, { children: texts(children), related: answers, last: rejected }));
  return new Outcome(outcome, logs);
};

/** What comes of a creation; of an update, if there is an `old` object; of a deletion of `object`, if `operation` says so. */
export const validate = (plugin, object, asked = {}) => {
  const logs = [];
  const { allowed, causes, warnings } = logging(logs, () => admission(plugin).validate(requestOf(object, asked)));
  const text = causes.map(({ field, message }) => (field === '' ? message : `${field}: ${message}`)).join('\n');
  return { allowed, causes, warnings, logs, toString: () => text };
};

/** The object with what the plugin fills in. Throws if it changes what it has completed already: that would never end. */
export const defaults = (plugin, object, asked = {}) => {
  const once = (one) => logging([], () => admission(plugin).defaultFields(requestOf(one, asked)));
  const completed = once(object);
  const again = once(JSON.parse(completed));
  if (again !== completed) throw new Error(`filled in once more, ${completed} becomes ${again}: nothing may change`);
  return JSON.parse(completed);
};

const admission = (plugin) => {
  if (plugin.admission === undefined) throw new TypeError('the plugin guards nothing: it has no `validate` and no `defaults`');
  return plugin.admission;
};

const requestOf = (
  object,
  {
    old, operation = old === undefined ? 'create' : 'update', subresource = '', user = 'somebody',
    groups = ['system:authenticated'], dryRun = false, config = {}, now = '2025-01-01T00:00:00Z',
  },
) => {
  const [fresh, stored] = operation === 'delete' ? [undefined, object] : [object, old];
  const text = (one) => (one === undefined ? undefined : JSON.stringify(one));
  return {
    operation, new: text(fresh), old: text(stored), user, groups, dryRun, subresource, config: JSON.stringify(config), now,
  };
};

/** Runs with the log going into a list. */
const logging = (logs, run) => {
  const before = sendTo((level, message) => logs.push({ level, message }));
  try {
    return run();
  } finally {
    sendTo(before);
  }
};

class Outcome {
  constructor({ actions, failure }, logs) {
    this.actions = actions;
    this.failure = failure;
    this.logs = logs;
  }

  #all(tag) {
    return this.actions.filter((action) => action.tag === tag).map(({ val }) => val);
  }

  get applied() {
    return this.#all('apply').map(({ object }) => JSON.parse(object));
  }

  get deleted() {
    return this.#all('delete').map(({ target }) => ({ kind: target.kind.kind, name: target.name }));
  }

  get status() {
    const [status] = this.#all('set-status');
    return status === undefined ? undefined : JSON.parse(status);
  }

  get events() {
    return this.#all('record-event');
  }

  get asked() {
    return this.#all('look-up');
  }

  get released() {
    return this.actions.some(({ tag }) => tag === 'release');
  }
}
