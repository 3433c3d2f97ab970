import { readdir, readFile } from 'node:fs/promises';
import { join, parse } from 'node:path';
import { expect } from 'chai';
import { root } from '../support/command-line.ts';

describe('pictures of the documents', () => {
  for (const theme of ['light', 'dark']) {
    it(`the ${theme} terminal of the README shows no schema version that this build does not have`, async () => {
      const files = await readdir(join(root, 'migrations/tenant'));
      const picture = await readFile(join(root, `docs/pictures/terminal-${theme}.svg`), 'utf8');

      const shown = picture.match(/\b\d{4}-[a-z][a-z-]*/g);

      // Made anew by: npm run -s readme:picture
      expect(files.map(file => parse(file).name)).to.include.members([...new Set(shown)]);
      expect(shown).not.to.equal(null);
    });
  }
});
