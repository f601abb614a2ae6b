// A plugin that guards its kind in every way that the SDK has: refusals, warnings, defaults, and mistakes.

import { InvalidError, plugin, resource } from '../../../guest-sdk/javascript/src/index.js';

const GROUP = 'javascript.pilothouse.dev';
const BOOKING = resource(GROUP, 'v1', 'bookings', 'Booking');

const spec = {
  type: 'object',
  required: ['room', 'seats'],
  properties: {
    room: { type: 'string' },
    seats: { type: 'integer' },
    title: { type: 'string' },
    held: { type: 'boolean' },
    behaviour: { type: 'string' },
  },
};

const crd = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: `bookings.${GROUP}` },
  spec: {
    group: GROUP,
    scope: 'Namespaced',
    names: { kind: 'Booking', listKind: 'BookingList', plural: 'bookings', singular: 'booking' },
    versions: [
      {
        name: 'v1',
        served: true,
        storage: true,
        subresources: { status: {}, scale: { specReplicasPath: '.spec.seats', statusReplicasPath: '.status.seats' } },
        schema: {
          openAPIV3Schema: {
            type: 'object',
            required: ['spec'],
            properties: { spec, status: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
          },
        },
      },
    ],
  },
};

export default plugin({
  name: 'guarding-javascript',
  version: '0.1.0',
  controllers: [
    {
      primary: BOOKING,
      crd,
      reconcile({ spec: { seats }, actions }) {
        actions.setStatus({ seats });
      },
      guard: { operations: ['create', 'update', 'delete'], subresources: ['scale'] },
      defaults({ spec, name, user, metadata }) {
        spec.title ??= `${name} for ${user}`;
        if (spec.behaviour === 'rename') metadata.name = 'other';
      },
      validate,
    },
  ],
});

function validate({ spec, old, operation, subresource, dryRun, refuse, warn }) {
  if (subresource === 'scale') {
    if (spec.replicas > 100) refuse('spec.replicas', 'at most 100 would be right');
    return;
  }
  if (operation === 'delete') {
    if (spec.held) refuse('spec.held', 'the booking is held', 'FieldValueForbidden');
    return;
  }
  if (spec.behaviour === 'raise') throw new TypeError('words of a mistake');
  warn(`${operation.toUpperCase()}, dry run: ${dryRun}`);
  if (old !== undefined && spec.room !== old.spec.room) {
    refuse('spec.room', 'a booking does not move', 'FieldValueForbidden');
  }
  if (spec.seats < 1) throw new InvalidError('spec.seats: 1 or more would be right');
}
