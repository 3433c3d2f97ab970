import { readdir, readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { parse } from 'yaml';
import { runCommand } from '../../support/run-command.ts';
import { useWorld } from '../../support/world.ts';

const operator = new URL('../../../src/operator/', import.meta.url);

describe('output of the command line', () => {
  const world = useWorld();

  it('-o yaml prints texts that readers of YAML 1.1 and of 1.2 read as the same texts', async () => {
    const run = async (...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await runCommand('scripts/backoffice.ts', args, {
        ...world.environment,
      });
      expect(code, stderr).to.equal(0);
      return stdout;
    };
    const names = ['no', 'Yes', 'off', 'y', '1_000', '2026-11-28', '12:30:45', '=', '0o17', '1e3'];

    for (const name of names) {
      await run('edit', 'acme', '--name', name);
      const text = await run('show', 'acme', '-o', 'yaml');

      for (const version of ['1.1', '1.2'] as const) {
        expect(parse(text, { version }).name, `${name} in ${version}`).to.equal(name);
      }
      expect(/^name: (.*)$/m.exec(text)?.[1], name).to.match(/^"/);
    }
  });

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
