// A Service for each pod of a StatefulSet that asks for it: Metacontroller's classic decorator, without its hooks.
//
//     metadata:
//       annotations:
//         service-per-pod-ports: "80:8080,443"        # port, and the pod's port if it is another
//         service-per-pod-label: example.com/instance # optional: the label that names the pod
//
// Pod NAME-N gets the Service NAME-N. The StatefulSet owns them: its deletion takes them along, fewer replicas or an
// annotation that is taken away delete them in the next pass.

import { InvalidError, SERVICE, STATEFUL_SET, object, plugin } from 'pilothouse';

const PORTS = 'service-per-pod-ports';
const LABEL = 'service-per-pod-label';

/** The StatefulSet controller gives each pod this label, with its name. */
const POD_NAME = 'statefulset.kubernetes.io/pod-name';

export default plugin({
  name: 'service-per-pod',
  version: '0.1.0',
  controllers: [{ primary: STATEFUL_SET, children: [SERVICE], reconcile }],
});

function reconcile({ name, spec, annotations, children, actions, log }) {
  const asked = annotations[PORTS];
  const ports = asked === undefined ? [] : portsOf(asked);
  const pods = asked === undefined ? [] : podsOf(name, spec);
  for (const pod of pods) {
    actions.apply({
      ...object(SERVICE, pod),
      spec: { selector: { [annotations[LABEL] ?? POD_NAME]: pod }, ports },
    });
  }
  const surplus = children.of(SERVICE).filter(({ metadata }) => !pods.includes(metadata.name));
  for (const { metadata } of surplus) {
    log.info(`${metadata.name} has no pod any more`);
    actions.delete(SERVICE, metadata.name);
  }
}

/** Names of the pods that there shall be: the Services are there before them, and while they start anew. */
function podsOf(name, { replicas = 1, ordinals }) {
  const first = ordinals?.start ?? 0;
  return Array.from({ length: replicas }, (_, at) => `${name}-${first + at}`);
}

function portsOf(text) {
  return text.split(',').map((pair) => {
    const numbers = pair.split(':').map((word) => (/^ *\d{1,5} *$/.test(word) ? Number(word) : NaN));
    const [port, targetPort = port] = numbers;
    if (numbers.length > 2 || !numbers.every((number) => number >= 1 && number <= 65535)) {
      throw new InvalidError(
        `metadata.annotations[${PORTS}]: \`${pair}\` is no port, PORT or PORT:POD-PORT would be right`,
      );
    }
    return { name: `port-${port}`, port, targetPort };
  });
}
