import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';

const lowPriority = new URL('../../../src/operator/cli/low-priority.ts', import.meta.url).href;

describe('priority of commands', () => {
  it('a process that a patient command starts has a lower priority than one that it starts before', () => {
    // In a process of its own, because only root can raise the priority again.
    const script = `
      import { execFileSync } from 'node:child_process';
      import { withLowPriority } from '${lowPriority}';
      const niceness = () => Number(execFileSync('nice'));
      const before = niceness();
      console.log(JSON.stringify([before, await withLowPriority(async () => niceness())]));`;
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], {
      cwd: fileURLToPath(new URL('.', import.meta.url)),
      encoding: 'utf8',
    });
    const [before, during] = JSON.parse(output);
    expect(during).to.be.greaterThan(before);
  });
});
