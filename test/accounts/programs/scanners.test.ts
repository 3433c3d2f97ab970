import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { createLegacyToken } from '../../../src/control/legacy-token.ts';
import { createProgramKey, programKeyPattern } from '../../../src/control/program-key.ts';

/** Returns the patterns of the rules for gitleaks, by their ids. */
async function readPatterns(): Promise<Map<string, RegExp>> {
  const text = await readFile(new URL('../../../.gitleaks.toml', import.meta.url), 'utf8');
  const rules = text.matchAll(/^id = "(.+)"\n.*\nregex = '''(.+)'''$/gm);

  return new Map([...rules].map(([, id = '', pattern = '']) => [id, new RegExp(pattern)]));
}

describe('secret scanners', () => {
  it('the rules for gitleaks find each key and each legacy token in a line, and no cut one', async () => {
    const patterns = await readPatterns();
    const found = (line: string) => [...patterns].filter(([, pattern]) => pattern.test(line));

    for (let i = 0; i < 200; i++) {
      const { key, prefix } = createProgramKey();
      expect(found(`KEY="${key}"`).map(([id]) => id)).to.deep.equal([
        'sales-back-office-program-key',
      ]);
      expect(found(`Authorization: Bearer ${createLegacyToken()}`).map(([id]) => id)).to.deep.equal(
        ['sales-back-office-legacy-token'],
      );
      expect(found(`the key ${prefix} of ${key.slice(0, -1)}`)).to.deep.equal([]);
    }
  });

  it('the guide states the pattern of a key', async () => {
    const guide = await readFile(
      new URL('../../../docs/guide/programs.md', import.meta.url),
      'utf8',
    );

    expect(guide).to.include(`\`${programKeyPattern}\``);
  });
});
