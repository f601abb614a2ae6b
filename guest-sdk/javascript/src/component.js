// What every component begins with; `build.mjs` writes the module that imports it and the plugin.

import { write } from 'pilothouse:operator/log@0.1.0';

import { sendTo } from './log.js';

sendTo(write);

// The engine has it, and its call would end in a trap without a word.
globalThis.fetch = () => {
  throw new TypeError('fetch: a plugin has no network');
};
