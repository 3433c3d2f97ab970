import { spawnSync } from 'node:child_process';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { root, startProgram } from '../../support/command-line.ts';
import { runCommand } from '../../support/run-command.ts';
import { createWorld, type World } from '../../support/world.ts';

/** Completes a line in a real shell. The scripts print the words that the shell would insert or offer. */
const shells: Record<string, { args: string[]; line: string }> = {
  // Bash splits words at @.
  bash: {
    args: [
      '-c',
      `source <(backoffice completion bash); COMP_LINE="$1" COMP_POINT=\${#1}
       COMP_WORDS=(\${1//@/ @ }); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _backoffice; printf '%s\\n' "\${COMPREPLY[@]}"`,
      'bash',
    ],
    line: 'backoffice user disable acme admin@a',
  },
  fish: {
    args: ['-c', 'backoffice completion fish | source; complete -C "$argv[1]"'],
    line: 'backoffice user disable acme admin@a',
  },
  zsh: {
    args: [
      '-fc',
      `zmodload zsh/zpty; zpty shell "PS1= zsh -fi"
       zpty -w shell 'autoload -Uz compinit; compinit -D -u; source <(backoffice completion zsh); print rea""dy'
       zpty -r shell output '*ready*'; zpty -w -n shell "$1"$'\\t'; zpty -r shell output '*@acme.test*'; print -r -- $output`,
      'zsh',
    ],
    line: 'backoffice user disable acme admin@a',
  },
};

describe('completion', () => {
  let world: World;
  let folder: string;
  before(async () => {
    world = await createWorld();
    folder = await mkdtemp(join(tmpdir(), 'backoffice-completion-'));
    await symlink(join(root, 'bin/backoffice'), join(folder, 'backoffice'));
  });
  after(async () => {
    await world.close();
    await rm(folder, { recursive: true });
  });

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
    expect(await complete('user', 'cha')).to.deep.equal(['change']);
    expect(await complete('suspend', '')).to.deep.equal(['acme', 'globex']);
    expect(await complete('suspend', 'g')).to.deep.equal(['globex']);
    expect(await complete('user', 'change', 'acme', '')).to.deep.equal([world.acme.admin.email]);
    expect(await complete('user', 'change', 'acme', 'x', '--role', 'M')).to.deep.equal(['Member']);
    expect(await complete('user', 'change', 'acme', 'x', '--role', 'Member', '--sc')).to.deep.equal(['--scope']);
    expect(await complete('list', '--status', 'sus')).to.deep.equal(['suspended']);
    expect(await complete('move', 'acme', '--to', '')).to.deep.equal(['default']);
    expect(await complete('provision', '')).to.deep.equal([]);
  });

  it('without a control database, completion offers commands and options, and prints no error', async () => {
    const lost = { ...world.environment, DATABASE_URL: 'postgresql://u:secret@127.0.0.1:1/x' };
    const { code, stdout, stderr } = await runCommand('scripts/backoffice.ts', ['__complete', 'suspend', ''], lost);
    expect({ code, stdout, stderr }).to.deep.equal({ code: 0, stdout: '', stderr: '' });
    const options = await runCommand('scripts/backoffice.ts', ['__complete', 'suspend', '--r'], lost);
    expect(options.stdout).to.match(/^--reason\t/);
  });

  for (const [shell, { args, line }] of Object.entries(shells)) {
    const isInstalled = spawnSync(shell, ['-c', 'true']).status === 0;
    (isInstalled ? it : it.skip)(`${shell} completes the e-mail address of a user in the middle of it`, async () => {
      const environment = { ...world.environment, PATH: `${folder}:${process.env.PATH}`, TERM: 'dumb', HOME: folder };
      const running = startProgram(shell, [...args, line], environment);
      running.process.stdin.end();
      const { stdout } = await running.ended;
      expect(stdout).to.include(shell === 'bash' ? 'acme.test' : world.acme.admin.email);
    });
  }
});
