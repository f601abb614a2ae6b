// Checks an object by the schema of its CustomResourceDefinition, before `reconcile` is called: what is required is there, and
// what is there is of its type.
//
// The API server checks that, and more, of what is written today. It does not of an object that was stored before the schema
// said so, or where the definition in the cluster is another one. To a reconciler such an object is a TypeError, which would be
// tried again for ever and tell its user nothing, or `undefined` in a child.

const NAMES = {
  object: 'a mapping', array: 'a list', string: 'a text', boolean: 'true or false', integer: 'a whole number', number: 'a number',
};

const isOf = (value, type) => {
  switch (type) {
    case 'object': return typeof value === 'object' && !Array.isArray(value);
    case 'array': return Array.isArray(value);
    case 'integer': return Number.isInteger(value);
    default: return typeof value === type;
  }
};

/** The first thing that is wrong with an object's `spec`: the field, and what would be right. */
export const problemOf = (object, crd) => {
  const version = object.apiVersion.split('/').at(-1);
  const schema = crd?.spec.versions.find(({ name }) => name === version)?.schema?.openAPIV3Schema;
  const spec = schema?.properties?.spec;
  if (spec === undefined) return undefined;
  if (object.spec == null) return schema.required?.includes('spec') ? 'spec: is missing' : undefined;
  return problem('spec', object.spec, spec);
};

const problem = (path, value, schema) => {
  const { type } = schema;
  if (schema['x-kubernetes-int-or-string']) {
    return isOf(value, 'integer') || isOf(value, 'string') ? undefined : `${path}: a whole number or a text would be right`;
  }
  if (type !== undefined && !isOf(value, type)) return `${path}: ${NAMES[type] ?? type} would be right`;
  if (schema.enum !== undefined && !schema.enum.includes(value)) {
    return `${path}: ${JSON.stringify(value)} is none of ${schema.enum.map((one) => JSON.stringify(one)).join(', ')}`;
  }
  if (typeof value !== 'object') return undefined;
  const properties = schema.properties ?? {};
  if (!Array.isArray(value)) {
    const missing = (schema.required ?? []).find((name) => value[name] == null && !properties[name]?.nullable);
    if (missing !== undefined) return `${path}.${missing}: is missing`;
  }
  for (const [name, one] of Object.entries(value)) {
    const [at, of] = Array.isArray(value)
      ? [`${path}[${name}]`, schema.items]
      : [`${path}.${name}`, properties[name] ?? schema.additionalProperties];
    // Null is as good as absent, and what the schema does not know is the API server's to drop.
    const found = one == null || typeof of !== 'object' ? undefined : problem(at, one, of);
    if (found !== undefined) return found;
  }
  return undefined;
};
