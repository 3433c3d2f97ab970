import { readdir, readFile } from 'node:fs/promises';
import { expect } from 'chai';

const operator = new URL('../../../src/operator/', import.meta.url);

describe('output of the command line', () => {
  it('only output.ts writes to stdout, so that --json prints nothing but JSON', async () => {
    const files = (await readdir(operator, { recursive: true })).filter(file =>
      file.endsWith('.ts'),
    );
    const writers: string[] = [];
    for (const file of files) {
      const text = await readFile(new URL(file, operator), 'utf8');
      if (/process\.stdout\.write|\bconsole\.(log|info|warn|error|debug|table|dir)\b/.test(text)) {
        writers.push(file);
      }
    }
    expect(writers).to.deep.equal(['cli/output.ts']);
  });
});
