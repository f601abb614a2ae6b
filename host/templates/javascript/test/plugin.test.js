// The plugin's function in Node: no cluster, no host, no WebAssembly.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { reconcile } from 'pilothouse/testing';

import plugin from '../plugin.js';

const resource = (message) => ({
  apiVersion: '{{group}}/{{version}}',
  kind: '{{kind}}',
  metadata: { name: 'hello', namespace: 'default', uid: 'u' },
  spec: { message },
});

test('a message becomes a ConfigMap', () => {
  const first = reconcile(plugin, resource('hello'));
  const [configMap] = first.applied;
  assert.equal(configMap.metadata.name, 'hello-message');
  assert.deepEqual(configMap.data, { message: 'hello' });
  assert.equal(first.status.conditions[0].status, 'False');

  const second = reconcile(plugin, resource('hello'), { children: [configMap] });
  assert.deepEqual(second.applied, first.applied);
  assert.equal(second.status.conditions[0].status, 'True');
});

test('a blank message is the user\'s to change', () => {
  const outcome = reconcile(plugin, resource(' '));
  assert.deepEqual(outcome.failure, { tag: 'invalid', val: 'spec.message: is blank, a text would be right' });
  assert.deepEqual(outcome.applied, []);
});
