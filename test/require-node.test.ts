import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { startProgram } from './support/command-line.ts';

describe('old Node', () => {
  it('a Node that cannot load TypeScript ends with one sentence that names the required version', async () => {
    const { scripts } = JSON.parse(await readFile(new URL('../package.json', import.meta.url), 'utf8'));
    for (const name of ['start', 'tenant', 'control']) {
      const [exec, node, ...args] = scripts[name].split(' ');
      expect([exec, node]).to.deep.equal(['exec', 'node']);
      const { code, stdout, stderr } = await startProgram(
        process.execPath,
        ['--no-experimental-strip-types', ...args],
        {},
      ).ended;
      expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
      expect(stderr).to.match(/^This is Node [\d.]+, and the service needs Node 22\.18 or newer: [^.]*\.\n$/);
    }
  });
});
