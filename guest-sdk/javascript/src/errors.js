// Why a pass could not reach its goal. Any other error ends the pass as a trap would: see `plugin.js`.

/**
 * The object is wrong and its user must change it: no retry until it, a child or a related object changes.
 *
 * The text names the field and what would be right. Actions before it are carried out all the same, so that a status can
 * say why.
 */
export class InvalidError extends Error {
  name = 'InvalidError';
}

/** Something else is not as it should be: try again, each time later. Actions before it are carried out. */
export class RetryError extends Error {
  name = 'RetryError';
}

/** A look-up that has no answer yet: the pass ends here, and the host begins it anew with the answer. */
export class Unanswered extends Error {
  name = 'Unanswered';
}
