import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';

const lowPriority = new URL('../../../src/operator/cli/low-priority.ts', import.meta.url).href;

describe('priority of commands', () => {
  it('a process that a patient command starts has a lower priority than one that it starts before', () => {
    const [before, during] = runScript(`
      import { execFileSync } from 'node:child_process';
      import { withLowPriority } from '${lowPriority}';
      const niceness = () => Number(execFileSync('nice'));
      const before = niceness();
      console.log(JSON.stringify([before, await withLowPriority(async () => niceness())]));`);
    expect(during).to.be.greaterThan(before);
  });

  it('every thread of a patient command has a lower priority, also those of V8 that began before', function () {
    if (!existsSync('/proc/self/task')) this.skip();
    const [before, during] = runScript(`
      import { readdirSync } from 'node:fs';
      import { getPriority } from 'node:os';
      import { withLowPriority } from '${lowPriority}';
      const priorities = () => readdirSync('/proc/self/task').map(thread => getPriority(Number(thread)));
      const before = priorities();
      console.log(JSON.stringify([before, await withLowPriority(async () => priorities())]));`);
    expect(before).to.have.length.greaterThan(1);
    expect(Math.min(...during)).to.be.greaterThan(Math.max(...before));
  });
});

/** Runs a script in a process of its own, because only root can raise the priority again. @returns what it prints */
function runScript(script: string) {
  const output = execFileSync(process.execPath, ['--input-type=module', '-e', script], {
    cwd: fileURLToPath(new URL('.', import.meta.url)),
    encoding: 'utf8',
  });
  return JSON.parse(output);
}
