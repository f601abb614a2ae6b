// Lines of the host's log, under the pass. In a component they go to the import `log`; elsewhere to whoever listens.

let sink = (level, message) => console.error(`${level}: ${message}`);

/** Replaces where lines go; returns what was there before. */
export const sendTo = (next) => {
  const before = sink;
  sink = next;
  return before;
};

const words = (parts) =>
  parts.map((part) => (typeof part === 'string' ? part : part instanceof Error ? `${part}` : JSON.stringify(part))).join(' ');

export const log = Object.freeze({
  debug: (...parts) => sink('debug', words(parts)),
  info: (...parts) => sink('info', words(parts)),
  warn: (...parts) => sink('warn', words(parts)),
  error: (...parts) => sink('error', words(parts)),
});

/** An error that is a mistake in the plugin, with its stack. */
export const logMistake = (error) => {
  log.error(`${error}`, ...String(error?.stack ?? '').split('\n').filter((line) => line !== ''));
};
