import assert from 'node:assert/strict';
import { test } from 'node:test';

import { CONFIG_MAP, InvalidError, POD, object, plugin, resource } from 'pilothouse';
import { defaults, reconcile, validate } from 'pilothouse/testing';

const THING = resource('example.com', 'v1', 'things', 'Thing');
const SCALE = { apiVersion: 'autoscaling/v1', kind: 'Scale', metadata: { name: 'one' }, spec: { replicas: 9 } };
const schema = {
  type: 'object',
  properties: { spec: { type: 'object', properties: { size: { type: 'integer' } } } },
};
const crd = { spec: { versions: [{ name: 'v1', schema: { openAPIV3Schema: schema } }] } };
const thing = (spec) => ({ ...object(THING, 'one'), spec });
const of = (controller, guards) =>
  plugin({ name: 'p', version: '1', controllers: [{ primary: THING, crd, reconcile() {}, ...controller }], guards });
const admission = (...made) => JSON.parse(of(...made).describe()).admission;

test('without functions nothing is guarded', () => {
  assert.equal(admission({}), undefined);
  assert.equal(of({}).admission, undefined);
  assert.throws(() => validate(of({}), thing({})), /guards nothing/);
});

test('a guard says what its kind has, and leaves defaults out', () => {
  assert.deepEqual(admission({ validate() {} }), [{ resource: THING }]);
  assert.deepEqual(admission({ defaults() {} }), [{ resource: THING, validates: false, defaults: true }]);
  const guard = { operations: ['delete'], subresources: ['scale'], failurePolicy: 'Ignore', timeoutSeconds: 3 };
  const both = admission({ validate() {}, guard }, [{ resource: POD, matchPolicy: 'Exact', defaults() {}, validate() {} }]);
  assert.deepEqual(both, [
    { resource: THING, ...guard },
    { resource: POD, matchPolicy: 'Exact', defaults: true },
  ]);
});

test('mistakes in the description are told by name', () => {
  assert.throws(() => of({ guard: {} }), /guard of Thing has neither `validate` nor `defaults`/);
  assert.throws(() => of({ validate() {}, guard: { operation: [] } }), /guard of Thing has no field `operation`/);
  assert.throws(() => of({}, [{ resource: POD, vaildate() {} }]), /guard of Pod has no field `vaildate`/);
  assert.throws(() => of({ validate: true }), /`validate` of Thing must be a function/);
  const guard = { subresources: ['scale'] };
  assert.throws(() => of({ validate() {}, guard }, [{ resource: POD, validate() {}, ...guard }]), /Thing and Pod guard `scale`/);
});

test('a check knows who asks for what', () => {
  let seen;
  const made = of({ validate(review) { seen = review; } });
  const [before, after] = [thing({ size: 1 }), thing({ size: 2 })];
  validate(made, after, { old: before, user: 'ann', groups: ['g'], dryRun: true, config: { c: 1 } });
  assert.deepEqual([seen.object, seen.old, seen.spec, seen.name], [after, before, { size: 2 }, 'one']);
  assert.deepEqual([seen.operation, seen.subresource, seen.user, seen.groups], ['update', '', 'ann', ['g']]);
  assert.deepEqual([seen.dryRun, seen.config, seen.now.getUTCFullYear()], [true, { c: 1 }, 2025]);
  validate(made, { ...after, metadata: { generateName: 'a-' } });
  assert.deepEqual([seen.name, seen.old, seen.operation], [undefined, undefined, 'create']);
  validate(made, before, { operation: 'delete' });
  assert.deepEqual([seen.object, seen.old], [before, before]);
});

test('what is refused is a cause with its field, and a warning is none', () => {
  const verdict = validate(
    of({
      validate({ refuse, warn }) {
        warn('soon no more');
        refuse('spec.size', 'only grows', 'FieldValueForbidden');
        refuse('', 'not today');
      },
    }),
    thing({}),
  );
  assert.equal(verdict.allowed, false);
  assert.deepEqual(verdict.causes[0], { field: 'spec.size', reason: 'FieldValueForbidden', message: 'only grows' });
  assert.equal(`${verdict}`, 'spec.size: only grows\nnot today');
  assert.deepEqual(verdict.warnings, ['soon no more']);
  assert.equal(validate(of({ validate({ warn }) { warn('a'); } }), thing({})).allowed, true);
});

test('one function checks in both lives', () => {
  for (const [text, field, message] of [
    ['spec.ports[0].name: too long: 64', 'spec.ports[0].name', 'too long: 64'],
    ['metadata.annotations[x]: no port', 'metadata.annotations[x]', 'no port'],
    ['not so: never', '', 'not so: never'],
    ['special: never', '', 'special: never'],
    ['', '', 'is not allowed'],
  ]) {
    const check = () => {
      throw new InvalidError(text);
    };
    const made = of({ validate: check, reconcile: check });
    const { causes } = validate(made, thing({}));
    assert.deepEqual(causes, [{ field, reason: 'FieldValueInvalid', message }]);
    assert.deepEqual(reconcile(made, thing({})).failure, { tag: 'invalid', val: text });
  }
});

test('what was refused before an error is told with it', () => {
  const check = ({ refuse }) => {
    refuse('spec.a', 'a');
    throw new InvalidError('spec.b: b');
  };
  assert.equal(`${validate(of({ validate: check }), thing({}))}`, 'spec.a: a\nspec.b: b');
});

test('a mistake fails the call', () => {
  const fails = (check, error) => assert.throws(() => validate(of({ validate: check }), thing({})), error);
  fails(() => undefined.size, TypeError);
  fails(async () => {}, /`validate` returned a promise/);
  fails(() => false, /`refuse\(field, message\)` would be right/);
});

test('what the schema does not allow is no mistake of the check', () => {
  const made = of({ validate({ spec, old }) { spec.size.toFixed(); old?.spec.size.toFixed(); } });
  const { causes } = validate(made, thing({ size: '1' }));
  assert.deepEqual(causes, [{ field: 'spec.size', reason: 'FieldValueInvalid', message: 'a whole number would be right' }]);
  assert.equal(validate(made, thing({ size: 1 }), { old: thing({ size: '1' }) }).allowed, true);
  const deletions = of({ validate({ old, warn }) { warn(`${old.spec.size}`); } });
  assert.deepEqual(validate(deletions, thing({ size: 'x' }), { operation: 'delete' }).warnings, ['x']);
});

test('what the schema does not allow can still be deleted', () => {
  const made = of({ validate({ spec, refuse }) { if (Number(spec.size.toFixed()) > 8) refuse('', 'held'); } });
  const deletion = (size) => validate(made, thing({ size }), { operation: 'delete' });
  assert.equal(`${deletion(9)}`, 'held');
  assert.equal(deletion('9').allowed, true);
  assert.throws(() => deletion(undefined), TypeError);
});

test('a scale is of the kind that asks for scales, and other kinds are let through', () => {
  const refusing = { validate({ refuse, spec }) { refuse('spec.replicas', `${spec.replicas}`); } };
  const made = of({ ...refusing, guard: { subresources: ['scale'] } }, [{ resource: POD, validate() {} }]);
  assert.equal(`${validate(made, SCALE, { old: SCALE, subresource: 'scale' })}`, 'spec.replicas: 9');
  assert.equal(validate(of(refusing), object(CONFIG_MAP, 'a')).allowed, true);
});

test('defaults are edits of the object', () => {
  const made = of({ defaults({ spec, name }) { spec.title ??= name; } });
  assert.deepEqual(defaults(made, thing({ size: 1 })), thing({ size: 1, title: 'one' }));
  assert.deepEqual(defaults(made, thing({ title: 'kept' })), thing({ title: 'kept' }));
  const bare = object(THING, 'one');
  assert.deepEqual(defaults(made, bare).spec, { title: 'one' });
  assert.deepEqual(defaults(of({ defaults() {} }), bare), bare);
  const maps = of({}, [{ resource: CONFIG_MAP, defaults({ object: map }) { map.data ??= { a: 'b' }; } }]);
  assert.deepEqual(defaults(maps, object(CONFIG_MAP, 'a')).data, { a: 'b' });
  assert.deepEqual(defaults(made, object(CONFIG_MAP, 'a')), object(CONFIG_MAP, 'a'));
});

test('the API server\'s own checks come after defaults and say better what is wrong', () => {
  const made = of({ defaults({ spec }) { spec.text ??= spec.size.toFixed(); } });
  assert.deepEqual(defaults(made, thing({ size: '1' })), thing({ size: '1' }));
  assert.throws(() => defaults(made, thing({})), TypeError);
});

test('defaults that would be without effect, or without end, are told', () => {
  assert.throws(() => defaults(of({ defaults: ({ spec }) => ({ ...spec, a: 1 }) }), thing({})), /an edit of `spec` would be right/);
  const counting = of({ defaults({ spec }) { spec.size = (spec.size ?? 0) + 1; } });
  assert.throws(() => defaults(counting, thing({})), /nothing may change/);
});
