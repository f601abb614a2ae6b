#!/usr/bin/env node
// From a plugin's file to a component: all that it imports in one module, run once inside the engine, and the engine's
// memory frozen. A call of the component begins right there.
//
// The command line of componentize cannot switch features off one by one, so this calls it as a library.

import { realpathSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const here = dirname(fileURLToPath(import.meta.url));

/** What a component of ours does without. Clocks, randomness and output it has; the host makes them of the pass. */
const DISABLED = ['http', 'fetch-event'];

/**
 * @param {string} source The module whose default export is a plugin.
 * @param {string} output Where the component goes.
 */
export const build = async (source, output) => {
  // A mistake in the file is told by this Node, in words rather than by a trap.
  const { default: plugin } = await import(pathToFileURL(resolve(source)));
  if (typeof plugin?.describe !== 'function') {
    throw new Error(`${source}: has no plugin: \`export default plugin({...})\` would be right`);
  }
  const { componentize, rolldown } = await tools();
  const directory = await mkdtemp(join(tmpdir(), 'pilothouse-'));
  try {
    const entry = join(directory, 'entry.js');
    const path = (of) => JSON.stringify(of);
    const guards = plugin.admission !== undefined;
    const exported = [
      `import ${path(join(here, 'src/component.js'))};`,
      `import plugin from ${path(resolve(source))};`,
      'export const reconciler = plugin;',
      // What is exported is part of what the host knows a plugin by, so that of one without webhooks is a pass alone.
      ...(guards ? ['export const { admission } = plugin;'] : []),
    ];
    await writeFile(entry, `${exported.join('\n')}\n`);
    const bundle = await rolldown({
      input: entry,
      external: (name) => name.startsWith('pilothouse:'),
      resolve: { alias: { pilothouse: join(here, 'src/index.js') } },
      platform: 'neutral',
      onLog: (level, log, handle) => {
        // Left out it would be an import of the component, which no host offers.
        if (log.code === 'UNRESOLVED_IMPORT') throw new Error(`${source}: ${log.message}`);
        handle(level, log);
      },
    });
    const sourcePath = join(directory, 'plugin.js');
    await bundle.write({ file: sourcePath, format: 'esm' });
    const { component } = await componentize({
      sourcePath,
      witPath: join(here, 'wit/operator.wit'),
      worldName: guards ? 'guarding-plugin' : 'plugin',
      disableFeatures: DISABLED,
    });
    // Whole or not at all, as the host may watch the directory: beside the target, and renamed.
    await mkdir(dirname(resolve(output)), { recursive: true });
    const beside = join(dirname(resolve(output)), `.${basename(output)}.${process.pid}`);
    await writeFile(beside, component);
    await rename(beside, output);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
};

const tools = async () => {
  try {
    const [{ componentize }, { rolldown }] = await Promise.all([
      import('@bytecodealliance/componentize-js'),
      import('rolldown'),
    ]);
    return { componentize, rolldown };
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new Error(`${error.message.split('\n')[0]}: run \`npm ci\` in ${here}`);
  }
};

const main = async () => {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { output: { type: 'string', short: 'o' } },
  });
  if (positionals.length !== 1) throw new Error('usage: pilothouse-build PLUGIN.js [-o COMPONENT.wasm]');
  const [source] = positionals;
  await build(source, values.output ?? source.replace(/\.m?js$/, '.wasm'));
};

// Node resolves the links by which npm puts a package and its programs into place, but not in this variable.
if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  main().catch((error) => {
    console.error(`pilothouse-build: ${error.message}`);
    process.exitCode = 1;
  });
}
