// What a pass may decide. Each method adds to the actions, which the host carries out in order after the pass, and only if
// the manifest allows them. What an option means stands in `operator.wit`.

import { Unanswered } from './errors.js';

const kindOf = ({ group, version, kind }) => ({ group, version, kind });
const reference = (resource, name, { namespace, uid }) => ({ kind: kindOf(resource), namespace, name, uid });

/** What differs from the contract's defaults; empty if nothing does. */
const text = (options) => {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return given.length === 0 ? '' : JSON.stringify(Object.fromEntries(given));
};

const pairs = (of = {}) => Object.entries(of).map(([key, value]) => ({ key, value }));

export class Actions {
  #list = [];
  #answers;

  /** @param {Map<string, object[]>} answers */
  constructor(answers) {
    this.#answers = answers;
  }

  #push(tag, val) {
    this.#list.push(val === undefined ? { tag } : { tag, val });
  }

  apply(object, { createOnly, onImmutable } = {}) {
    this.#push('apply', { object: JSON.stringify(object), options: text({ createOnly, onImmutable }) });
  }

  delete(resource, name, { namespace, uid, propagation, gracePeriodSeconds } = {}) {
    const target = reference(resource, name, { namespace, uid });
    this.#push('delete', { target, options: text({ propagation, gracePeriodSeconds }) });
  }

  patchTarget(resource, name, patch, { namespace, uid, subresource } = {}) {
    const target = reference(resource, name, { namespace, uid });
    this.#push('patch-target', { target, patch: JSON.stringify(patch), options: text({ subresource }) });
  }

  generateSecret(name, { literals, random = {}, composed, labels, annotations, type } = {}) {
    const drawn = Object.entries(random).map(([key, { length, alphabet = 'alphanumeric' }]) => ({
      key, length, alphabet,
    }));
    this.#push('generate-secret', {
      name,
      literals: pairs(literals),
      random: drawn,
      composed: pairs(composed),
      options: text({ labels, annotations, type }),
    });
  }

  setStatus(status) {
    this.#push('set-status', JSON.stringify(status));
  }

  event(reason, message, { warning = false } = {}) {
    this.#push('record-event', { severity: warning ? 'warning' : 'normal', reason, message });
  }

  requeueAfter(seconds) {
    this.#push('requeue-after', BigInt(Math.max(0, Math.round(seconds * 1000))));
  }

  release() {
    this.#push('release');
  }

  extension(name, body) {
    this.#push('extension', { name, body: JSON.stringify(body) });
  }

  lookUp(id, resource, { name, namespace, selector, limit } = {}) {
    const answer = this.#answers.get(id);
    if (answer !== undefined) return answer;
    const options = text({ labelSelector: selector, limit });
    this.#push('look-up', { id, kind: kindOf(resource), namespace, name, options });
    throw new Unanswered(id);
  }

  /** The contract's list. */
  toList() {
    return this.#list;
  }

  /** Only what was asked: the host forgets the rest. */
  asked() {
    return this.#list.filter(({ tag }) => tag === 'look-up');
  }
}
