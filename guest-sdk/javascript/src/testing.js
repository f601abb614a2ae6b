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
  const before = sendTo((level, message) => logs.push({ level, message }));
  try {
    const outcome = plugin.reconcile(desired, { children: texts(children), related: answers, last: rejected });
    return new Outcome(outcome, logs);
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
