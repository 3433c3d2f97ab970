import { spawnSync } from 'node:child_process';
import { expect } from 'chai';
import { shownCandidates } from '../../../src/operator/cli/ask-missing.ts';
import { nodeOptions, root, shellLine, startProgram } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { useWorld } from '../../support/world.ts';

const hasScript = spawnSync('script', ['--version']).stdout?.includes('util-linux') ?? false;

describe('questions of the command line', () => {
  const world = useWorld();

  /**
   * Runs a command on a terminal, and types the answers, each when its question is on the
   * screen.
   */
  async function onTerminal(args: string[], answers: [question: string, answer: string][]) {
    const line = shellLine([
      process.execPath,
      ...nodeOptions(),
      `${root}scripts/backoffice.ts`,
      ...args,
    ]);
    const running = startProgram('script', ['-qefc', line, '/dev/null'], {
      ...world.environment,
      TERM: 'dumb',
    });
    for (const [question, answer] of answers) {
      await eventually(async () => running.output.stdout.includes(question));
      running.process.stdin.write(answer);
    }
    const { code, stdout } = await running.ended;
    return { code, screen: stdout };
  }

  (hasScript ? it : it.skip)(
    'on a terminal, a command asks for what is missing, and Tab completes it',
    async () => {
      const { code, screen } = await onTerminal(
        ['user', 'role'],
        [
          ['Tenant (', 'glo\t'],
          ['globex', '\r'],
          ['E-mail address (', `${world.globex.admin.email}\r`],
        ],
      );
      expect(screen)
        .to.include('Tenant')
        .and.match(/scope +All/);
      expect(code).to.equal(0);
    },
  );

  it('of several values, Tab shows the meaning of each, because a number says nothing', () => {
    const [till, list] = [{ value: '3', description: 'Till' }, { value: '4' }];

    expect(shownCandidates([till, list])).to.deep.equal(['3  Till', '4']);
    expect(shownCandidates([till])).to.deep.equal(['3']);
  });

  it('without a terminal, a command asks nothing, names what is missing and exits with 2', async () => {
    const missing = {
      suspend: "missing required argument 'slug'",
      'client add acme a@acme.test': "required option '--name <name>' not specified",
      provision: 'Give a slug, --name and --admin-email',
      'server remove default': 'default has the control database',
    };

    for (const [line, text] of Object.entries(missing)) {
      const { code, stderr } = await runCommand(
        'scripts/backoffice.ts',
        line.split(' '),
        world.environment,
      );

      expect({ code, text: stderr }, line).to.satisfy(
        (result: { code: number; text: string }) =>
          result.code === (line.startsWith('server') ? 1 : 2) && result.text.includes(text),
      );
    }
  });
});
