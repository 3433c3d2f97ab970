import { expect } from 'chai';
import { runCommand } from '../../support/run-command.ts';
import { useWorld } from '../../support/world.ts';

describe('completion', () => {
  const world = useWorld();

  async function complete(...words: string[]): Promise<string[]> {
    const { code, stdout, stderr } = await runCommand(
      'scripts/backoffice.ts',
      ['__complete', ...words],
      world.environment,
    );
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    return stdout
      .split('\n')
      .map(line => line.split('\t')[0] ?? '')
      .filter(Boolean);
  }

  it('a word is completed as command, option, choice, tenant, user of the tenant, role or server, by its place', async () => {
    expect(await complete('su')).to.deep.equal(['suspend']);
    expect(await complete('user', 'fi')).to.deep.equal(['find']);
    expect(await complete('suspend', '')).to.deep.equal(['acme', 'globex']);
    expect(await complete('suspend', 'g')).to.deep.equal(['globex']);
    expect(await complete('user', 'role', 'acme', '')).to.deep.equal([world.acme.admin.email]);
    expect(await complete('user', 'add', 'acme', 'x', '--role', 'M')).to.deep.equal(['Member']);
    expect(await complete('user', 'add', 'acme', 'x', '--role', 'Member', '--sc')).to.deep.equal([
      '--scope',
    ]);
    expect(await complete('list', '--status', 'sus')).to.deep.equal(['suspended']);
    expect(await complete('move', 'acme', '--to', '')).to.deep.equal(['default']);
    expect(await complete('provision', '')).to.deep.equal([]);
  });

  it('without a control database, completion offers commands and options, and prints no error', async () => {
    const lost = { ...world.environment, DATABASE_URL: 'postgresql://u:secret@127.0.0.1:1/x' };

    const { code, stdout, stderr } = await runCommand(
      'scripts/backoffice.ts',
      ['__complete', 'suspend', ''],
      lost,
    );
    expect({ code, stdout, stderr }).to.deep.equal({ code: 0, stdout: '', stderr: '' });

    const options = await runCommand(
      'scripts/backoffice.ts',
      ['__complete', 'suspend', '--r'],
      lost,
    );
    expect(options.stdout).to.match(/^--reason\t/);
  });
});
