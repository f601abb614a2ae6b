// Writes what is made of the contract: its copy beside this package, and its types. A test compares.

import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { $init, generateTypes } from '@bytecodealliance/jco-transpile/component';

const here = dirname(fileURLToPath(import.meta.url));

/** Files and their texts, by paths below this package. */
export const generated = async (wit) => {
  await $init;
  const files = generateTypes('plugin', {
    // By its text: by its path it would be read through the generator's own sandbox.
    wit: { tag: 'source', val: wit },
    world: 'guarding-plugin',
    features: { tag: 'list', val: [] },
    tlaCompat: false,
    guest: true,
    flagsAsBigint: false,
    variantsInlineCases: false,
    useNamespaceObjects: false,
    enumValuesScreamingSnakeCase: false,
  });
  const types = files.map(([name, content]) => [join('types/contract', name), new TextDecoder().decode(content)]);
  return new Map([['wit/operator.wit', wit], ...types]);
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const wit = await readFile(join(here, '../../wit/operator.wit'), 'utf8');
  for (const [path, text] of await generated(wit)) {
    await mkdir(dirname(join(here, path)), { recursive: true });
    await writeFile(join(here, path), text);
  }
}
