import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { CONFIG_MAP, InvalidError, POD, RetryError, object, plugin, resource } from 'pilothouse';
import { reconcile } from 'pilothouse/testing';

const THING = resource('example.com', 'v1', 'things', 'Thing');
const thing = { ...object(THING, 'one'), spec: { text: 'a' } };
const of = (controller) =>
  plugin({ name: 'p', version: '1', controllers: [{ primary: THING, children: [CONFIG_MAP], ...controller }] });

test('the manifest is made of what was said, and a wrong field is refused by name', () => {
  const made = of({ reconcile() {}, related: [{ name: 'pods', resource: POD, selector: 'app=$(name)' }] });
  const manifest = JSON.parse(made.describe());
  assert.deepEqual(manifest.crds, []);
  assert.deepEqual(manifest.controllers[0], {
    primary: THING,
    children: [{ resource: CONFIG_MAP }],
    related: [{ name: 'pods', resource: POD, selector: 'app=$(name)' }],
    targets: [],
  });
  assert.throws(() => of({ reconcile() {}, chidlren: [] }), /no field `chidlren`/);
  assert.throws(() => of({}), /Thing has no function `reconcile`/);
});

test('actions keep their order and leave defaults out', () => {
  const outcome = reconcile(
    of({
      reconcile({ actions, spec }) {
        actions.apply({ ...object(CONFIG_MAP, 'a'), data: spec }, { createOnly: true });
        actions.delete(CONFIG_MAP, 'b');
        actions.generateSecret('s', { random: { password: { length: 32 } } });
        actions.requeueAfter(1.5);
        actions.setStatus({ done: true });
      },
    }),
    thing,
  );
  assert.deepEqual(outcome.actions.map(({ tag }) => tag), [
    'apply', 'delete', 'generate-secret', 'requeue-after', 'set-status',
  ]);
  assert.equal(outcome.actions[0].val.options, '{"createOnly":true}');
  assert.equal(outcome.actions[1].val.options, '');
  assert.deepEqual(outcome.actions[2].val.random, [{ key: 'password', length: 32, alphabet: 'alphanumeric' }]);
  assert.equal(outcome.actions[3].val, 1500n);
  assert.deepEqual(outcome.status, { done: true });
});

test('a failure keeps what was decided, a mistake does not', () => {
  const failing = (error) => reconcile(of({ reconcile({ actions }) { actions.setStatus({}); throw error; } }), thing);
  assert.deepEqual(failing(new InvalidError('spec.text: no')).failure, { tag: 'invalid', val: 'spec.text: no' });
  assert.deepEqual(failing(new RetryError('later')).failure, { tag: 'retry', val: 'later' });
  assert.equal(failing(new RetryError('later')).actions.length, 1);
  const mistake = failing(new TypeError('x is not a function'));
  assert.deepEqual(mistake.failure, { tag: 'retry', val: 'TypeError: x is not a function' });
  assert.deepEqual(mistake.actions, []);
  assert.match(mistake.logs[0].message, /TypeError: x is not a function/);
});

test('a promise is refused, as nothing could settle it', () => {
  const outcome = reconcile(of({ async reconcile() {} }), thing);
  assert.equal(outcome.failure.tag, 'retry');
  assert.match(outcome.failure.val, /promise/);
});

test('a look-up ends the pass until it is answered', () => {
  const asking = of({
    reconcile({ actions }) {
      actions.apply(object(CONFIG_MAP, 'before'));
      const pods = actions.lookUp('pods', POD, { selector: 'app=a' });
      actions.setStatus({ pods: pods.map(({ metadata }) => metadata.name) });
    },
  });
  const first = reconcile(asking, thing);
  assert.deepEqual(first.actions.map(({ tag }) => tag), ['look-up']);
  assert.equal(first.asked[0].options, '{"labelSelector":"app=a"}');
  const second = reconcile(asking, thing, { related: { pods: [object(POD, 'x')] } });
  assert.deepEqual(second.status, { pods: ['x'] });
});

test('deletion releases at once, unless there is something to do', () => {
  assert.equal(reconcile(of({ reconcile() {} }), thing, { deleting: true }).released, true);
  assert.equal(reconcile(of({ reconcile() {}, finalize() {} }), thing, { deleting: true }).released, false);
});

test('children and answers can be searched', () => {
  let seen;
  const children = [object(CONFIG_MAP, 'a'), object(POD, 'a'), object(CONFIG_MAP, 'b')];
  reconcile(of({ reconcile(pass) { seen = pass; } }), thing, { children, config: { c: 1 } });
  assert.equal(seen.children.of(CONFIG_MAP).length, 2);
  assert.deepEqual(seen.children.named(POD, 'a'), object(POD, 'a'));
  assert.equal(seen.children.named(POD, 'b'), undefined);
  assert.deepEqual(seen.config, { c: 1 });
});

test('what is generated of the contract is up to date', async () => {
  const { generated } = await import('../generate.mjs');
  const wit = await readFile(new URL('../../../wit/operator.wit', import.meta.url), 'utf8');
  for (const [path, text] of await generated(wit)) {
    const committed = await readFile(new URL(`../${path}`, import.meta.url), 'utf8');
    assert.equal(committed, text, `${path}: \`npm run generate\` writes it`);
  }
});

test('an object that its schema does not allow is the user\'s to mend, and can still be deleted', () => {
  const spec = {
    type: 'object',
    required: ['size'],
    properties: {
      size: { type: 'integer' },
      mode: { type: 'string', enum: ['a', 'b'] },
      port: { 'x-kubernetes-int-or-string': true },
      labels: { type: 'object', additionalProperties: { type: 'string' } },
      list: { type: 'array', items: { type: 'object', required: ['name'] } },
    },
  };
  const openAPIV3Schema = { type: 'object', required: ['spec'], properties: { spec } };
  const crd = { spec: { versions: [{ name: 'v1', schema: { openAPIV3Schema } }] } };
  const checked = of({ crd, reconcile({ spec: { size }, actions }) { actions.setStatus({ size }); } });
  const pass = (given, options) => reconcile(checked, { ...thing, spec: given }, options);
  for (const [given, problem] of [
    [undefined, 'spec: is missing'],
    ['text', 'spec: a mapping would be right'],
    [{}, 'spec.size: is missing'],
    [{ size: '1' }, 'spec.size: a whole number would be right'],
    [{ size: 1.5 }, 'spec.size: a whole number would be right'],
    [{ size: 1, mode: 'c' }, 'spec.mode: "c" is none of "a", "b"'],
    [{ size: 1, port: [] }, 'spec.port: a whole number or a text would be right'],
    [{ size: 1, labels: { x: 1 } }, 'spec.labels.x: a text would be right'],
    [{ size: 1, list: [{ name: 'a' }, {}] }, 'spec.list[1].name: is missing'],
  ]) {
    assert.deepEqual(pass(given).failure, { tag: 'invalid', val: problem });
  }
  const right = { size: 1, mode: 'a', port: 'http', labels: { x: '1' }, list: null, more: [1] };
  assert.deepEqual(pass(right).status, { size: 1 });
  assert.equal(pass({}, { deleting: true }).released, true);
});
