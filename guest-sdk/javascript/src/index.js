// Write a Kubernetes operator as functions; the types, with their documentation, are in `types/index.d.ts`.

export { InvalidError, RetryError } from './errors.js';
export * from './kinds.js';
export { plugin } from './plugin.js';
