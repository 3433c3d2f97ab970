import { expect } from 'chai';
import { catalogue } from '../../../src/operator/cli/catalogue.ts';
import { operationsOf } from '../../../src/operator/command/operation.ts';
import { addSampleUser } from '../../accounts/auth/sample-users.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import type { ScriptResult } from '../../support/command-line.ts';
import { runCommand } from '../../support/run-command.ts';
import { useFolder } from '../../support/use.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';

const width = 80;

describe('width of the text', () => {
  const world = useWorld();
  const folder = useFolder();
  let email: string;
  let environment: Record<string, string>;

  const run = (...args: string[]): Promise<ScriptResult> =>
    runCommand('scripts/backoffice.ts', args, environment);

  /**
   * Makes a fleet with long names, several users, sessions, clients, archives and runs, one of
   * which has failed.
   */
  before(async () => {
    environment = {
      ...world.environment,
      COLUMNS: String(width),
      ...(await backupSettings(folder)),
    };
    ({ email } = await addSampleUser(world, world.acme));
    await world.login(world.acme);
    const name = 'International Trading and Shipping Company of Lower Austria and Vienna Ltd';
    const lines = [
      ['edit', 'acme', '--name', name, '--enable', 'legacyTokens', '--enable', 'selfRegistration'],
      [
        'client',
        'add',
        'acme',
        email,
        '--name',
        'Till in the second shop in Graz, beside the station',
      ],
      [
        'key',
        'rotate',
        'acme',
        '--reason',
        'the yearly rotation of keys, as the rules of the company say',
      ],
      [
        'program',
        'add',
        'acme',
        '--name',
        'Till in the second shop in Graz, beside the station',
        '--role',
        'Member',
        '--scope',
        'All',
        '--network',
        '192.0.2.0/24',
      ],
      ['backup', 'init'],
      ['backup', 'run', '--all'],
      ['suspend', 'nobody', '--yes'],
    ];
    for (const line of lines) await run(...line);
    await controlSql(world, `update tenants set schema_fingerprint = null`);
    await sql(world.globex, 'create table unexpected_table_of_somebody (id bigint)');
    await run('migrate', '--all');
  });

  /**
   * The arguments that a list or `show` needs, by its name; some have nothing to show without a
   * restore.
   */
  const argumentsOf = (): Record<string, string> => ({
    show: 'acme',
    'user list': 'acme',
    'user find': email,
    'user role': `acme ${email}`,
    'session list': 'acme',
    'key list': 'acme',
    'program list': 'acme',
    'program key list': 'acme',
    'program key find': 'sbk_00000000',
    'identity-provider list': 'acme',
    'client list': 'acme',
  });
  const without = [
    'restore diff',
    'runs watch',
    'completion',
    'backup drill',
    'backup keygen',
    'console',
  ];
  const prose = ['backup verify', 'doctor'];

  it('no line of list, of show or of any other view is wrapped on a terminal of 80 columns', async () => {
    const all = (await Promise.all(catalogue.map(operationsOf))).flat();
    const looks = all.filter(
      ({ effect, name }) => effect === 'reads' && ![...without, ...prose].includes(name),
    );
    expect(looks.length).to.be.greaterThan(15);

    const folded: Record<string, string[]> = {};
    for (const { name } of looks) {
      const { code, stdout, stderr } = await run(
        ...`${name} ${argumentsOf()[name] ?? ''}`.trim().split(' '),
      );
      expect({ name, code, stderr }).to.deep.equal({ name, code: 0, stderr: '' });
      expect(stdout.trim(), name).to.not.equal('');

      const lines = stdout
        .split('\n')
        .filter(line => line.length > width && line.trim().includes(' '));
      if (lines.length > 0) folded[name] = lines;
    }

    expect(folded).to.deep.equal({});
  });
});
