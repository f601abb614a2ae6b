// The plugin `{{name}}`: a ConfigMap for each {{kind}}.

import { CONFIG_MAP, InvalidError, object, plugin, resource } from 'pilothouse';

import crd from './crd.js';

// What the plugin is and may touch: the host allows it nothing else.
export default plugin({
  name: '{{name}}',
  version: '0.1.0',
  controllers: [{
    primary: resource('{{group}}', '{{version}}', '{{plural}}', '{{kind}}'),
    children: [CONFIG_MAP],
    crd,
    reconcile,
  }],
});

/** One pass: says what shall be there. The host finds out what of that has to be written. */
function reconcile({ name, spec, children, actions }) {
  const { message } = spec;
  if (message.trim() === '') throw new InvalidError('spec.message: is blank, a text would be right');
  const configMap = `${name}-message`;
  actions.apply({ ...object(CONFIG_MAP, configMap), data: { message } });

  const ready = children.named(CONFIG_MAP, configMap) === undefined
    ? { status: 'False', reason: 'Writing', message: 'the ConfigMap is not there yet' }
    : { status: 'True', reason: 'Written', message: 'the ConfigMap is there' };
  actions.setStatus({ configMap, conditions: [{ type: 'Ready', ...ready }] });
}
