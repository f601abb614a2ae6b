// What an author's function sees of the cluster: plain objects, their parts by name, and lists that can be searched.

import { isOf } from './kinds.js';

/** The parts of an object that have names of their own beside it. */
export const partsOf = (object) => {
  const { metadata = {} } = object;
  return {
    spec: object.spec ?? {},
    status: object.status ?? {},
    metadata,
    name: metadata.name,
    namespace: metadata.namespace,
    uid: metadata.uid,
    labels: metadata.labels ?? {},
    annotations: metadata.annotations ?? {},
  };
};

/** Objects that can be searched, in the order of the contract. */
export class Found extends Array {
  static get [Symbol.species]() {
    return Array;
  }

  constructor(objects, complete = true) {
    super();
    this.push(...objects);
    this.complete = complete;
  }

  of(resource) {
    return this.filter((one) => isOf(resource, one));
  }

  named(resource, name) {
    return this.find((one) => one.metadata.name === name && isOf(resource, one));
  }
}
