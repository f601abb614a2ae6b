// A plugin that reaches for everything that the engine has. Its status says what it found: nothing of the machine, and the
// same on each run. With `spec.behaviour: steady` it does what the guest `steady` does, for comparison.

import { CONFIG_MAP, object, plugin, resource } from '../../../guest-sdk/javascript/src/index.js';

const CHILDREN = 5;
let calls = 0;

export default plugin({
  name: 'probe-javascript',
  version: '0.1.0',
  controllers: [
    {
      primary: resource('test.pilothouse.dev', 'v1', 'probes', 'Probe'),
      children: [CONFIG_MAP],
      reconcile,
    },
  ],
});

/** What comes of it, as text. */
function attempt(what) {
  try {
    return String(what());
  } catch (error) {
    return error.name;
  }
}

function recurse(depth) {
  return depth === 0 ? 0 : 1 + recurse(depth - 1);
}

function reconcile({ name, spec, now, actions, log }) {
  switch (spec.behaviour) {
    case 'steady':
      for (let position = 0; position < CHILDREN; position += 1) {
        const data = { text: spec.text, position: String(position) };
        actions.apply({ ...object(CONFIG_MAP, `${name}-${position}`), data });
      }
      actions.setStatus({ done: true });
      return;
    case 'loop':
      for (;;);
    case 'grow':
      actions.setStatus({ bytes: new Uint8Array(1 << 30).length });
      return;
    case 'raise':
      throw new TypeError('words of a mistake');
    case 'remember':
      calls += 1;
      actions.setStatus({ calls });
      return;
    default:
      log.info('looking');
      console.log('to stdout');
      console.error('to stderr');
      actions.setStatus({
        denied: {
          fetch: attempt(() => fetch('http://127.0.0.1/')),
          process: attempt(() => process.env),
          require: attempt(() => globalThis.require('fs')),
          recursion: attempt(() => recurse(1_000_000)),
        },
        unixSeconds: Date.now() / 1000,
        now: now.getTime() === Date.now() && new Date().getTime() === Date.now(),
        zone: new Date(0).getTimezoneOffset(),
        random: [Math.random(), crypto.randomUUID(), crypto.getRandomValues(new Uint8Array(4)).join()],
      });
  }
}
