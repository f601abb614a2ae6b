import assert from 'node:assert/strict';
import { test } from 'node:test';

import { reconcile } from 'pilothouse/testing';

import plugin from '../service-per-pod.js';

const set = (annotations, spec = { replicas: 2 }) => ({
  apiVersion: 'apps/v1',
  kind: 'StatefulSet',
  metadata: { name: 'web', namespace: 'shop', uid: 'u', annotations },
  spec,
});
const names = (outcome) => outcome.applied.map(({ metadata }) => metadata.name);

test('each pod gets its Service, whatever the ordinals begin with', () => {
  const outcome = reconcile(plugin, set({ 'service-per-pod-ports': '80:8080,443' }));
  assert.deepEqual(names(outcome), ['web-0', 'web-1']);
  assert.deepEqual(outcome.applied[1].spec, {
    selector: { 'statefulset.kubernetes.io/pod-name': 'web-1' },
    ports: [
      { name: 'port-80', port: 80, targetPort: 8080 },
      { name: 'port-443', port: 443, targetPort: 443 },
    ],
  });
  const later = set({ 'service-per-pod-ports': '80' }, { replicas: 2, ordinals: { start: 5 } });
  assert.deepEqual(names(reconcile(plugin, later)), ['web-5', 'web-6']);
});

test('the label may be another', () => {
  const outcome = reconcile(plugin, set({ 'service-per-pod-ports': '80', 'service-per-pod-label': 'app/pod' }));
  assert.deepEqual(outcome.applied[0].spec.selector, { 'app/pod': 'web-0' });
});

test('what has no pod any more is deleted, and all when nobody asks', () => {
  const children = ['web-0', 'web-1', 'web-2'].map((name) => ({
    apiVersion: 'v1', kind: 'Service', metadata: { name, namespace: 'shop' },
  }));
  const scaled = reconcile(plugin, set({ 'service-per-pod-ports': '80' }), { children });
  assert.deepEqual(scaled.deleted, [{ kind: 'Service', name: 'web-2' }]);
  assert.equal(scaled.logs[0].message, 'web-2 has no pod any more');
  const unasked = reconcile(plugin, set({}), { children });
  assert.deepEqual(unasked.applied, []);
  assert.equal(unasked.deleted.length, 3);
});

test('ports that are none are the user\'s to change, and nothing is touched', () => {
  for (const wrong of ['', 'http', '0', '65536', '80:81:82', '80,', '-1']) {
    const outcome = reconcile(plugin, set({ 'service-per-pod-ports': wrong }));
    assert.equal(outcome.failure?.tag, 'invalid', wrong);
    assert.match(outcome.failure.val, /^metadata\.annotations\[service-per-pod-ports\]: /);
    assert.deepEqual(outcome.actions, []);
  }
});
