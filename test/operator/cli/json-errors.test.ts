import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { type ScriptResult, startScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { jsonLines } from '../../support/json-lines.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { runCommand } from '../../support/run-command.ts';
import { useWorld } from '../../support/world.ts';

describe('errors of the command line', () => {
  const world = useWorld();

  const run = (args: string[], settings: Record<string, string> = {}): Promise<ScriptResult> =>
    runCommand('scripts/tenant.ts', args, { ...world.environment, ...settings });

  it('with --json an error is one line on stderr with code, message and hint, and stdout stays empty', async () => {
    const failing: [string[], Record<string, string>, number, string, RegExp, RegExp | null][] = [
      [['list', '--json', '--nothing'], {}, 2, 'usage', /^unknown option '--nothing'/, null],
      [['user', '--json'], {}, 2, 'usage', /./, null],
      [['nothing', '--json'], {}, 2, 'usage', /^unknown command 'nothing'/, null],
      [['migrate', '--json'], {}, 2, 'usage', /^Either name tenants/, null],
      [['list', '--json'], { PORT: 'x' }, 1, 'configuration', /PORT must be a port number/, null],
      [
        ['list', '--json'],
        { DATABASE_URL: 'postgresql://u:secret-word@127.0.0.1:1/x' },
        1,
        'database_unusable',
        /^The control database cannot be used: nothing listens at its address\.$/,
        /^Start the server, or correct the host and the port in DATABASE_URL/,
      ],
      [
        ['key', 'disable', 'acme', 'nothing', '--json', '--yes'],
        {},
        1,
        'failed',
        /^acme has no key nothing\.$/,
        /^List its keys: bin\/backoffice key list acme$/,
      ],
    ];

    for (const [args, settings, exitCode, code, message, hint] of failing) {
      const result = await run(args, settings);
      expect({ code: result.code, stdout: result.stdout }, args.join(' ')).to.deep.equal({
        code: exitCode,
        stdout: '',
      });
      expect(result.stderr).to.match(/^[^\n]+\n$/);

      const { error } = JSON.parse(result.stderr);
      expect(error, args.join(' ')).to.have.all.keys('code', 'message', 'hint');
      expect(error.code).to.equal(code);
      expect(error.message).to.match(message);
      if (hint) expect(error.hint).to.match(hint);
    }
  });

  it('an error of a read-only server says that it is read-only, without a stack', async () => {
    const { pathname } = new URL(world.acme.adminUrl);
    await withConnection(world.acme.adminUrl, async client => {
      await client.query(
        `alter database "${pathname.slice(1)}" set default_transaction_read_only = on`,
      );

      const { code, stderr } = await run(['packs', 'apply', 'acme', '--packs', 'units', '--json']);
      await client.query(
        `alter database "${pathname.slice(1)}" reset default_transaction_read_only`,
      );

      const { error } = JSON.parse(stderr);
      expect(code).to.equal(1);
      expect(error.code).to.equal('database_unusable');
      expect(error.message).to.match(/^PostgreSQL cannot be used: it is read-only/);
    });
  });

  it('with --json a warning is one line of JSON on stderr', async () => {
    const { code, stderr } = await run(['list', '--json'], { DATABSE_URL: 'x' });
    expect(code).to.equal(0);
    expect(JSON.parse(stderr)).to.deep.equal({
      warning: {
        message: 'DATABSE_URL is not a setting and has no effect: did you mean DATABASE_URL?',
      },
    });
  });

  it('a command that fails before its first query through the entity manager ends without a wait of 30 s', async () => {
    const startedAt = performance.now();
    const { code, stderr } = await run(['session', 'revoke', 'acme', '--yes']);
    expect([code, stderr]).to.deep.equal([
      2,
      'Give either the id of a session, or --user with an e-mail address.\n',
    ]);
    expect(performance.now() - startedAt).to.be.below(29_000);
  });

  it('SIGTERM lets backup run end the running archive, and begin no further one', async () => {
    const target = await mkdtemp(join(tmpdir(), 'backoffice-target-'));
    const environment = { ...world.environment, ...(await backupSettings(target)) };
    expect((await runCommand('scripts/tenant.ts', ['backup', 'init'], environment)).code).to.equal(
      0,
    );

    await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin; lock table countries in access exclusive mode');

      const backup = startScript(
        'scripts/tenant.ts',
        ['backup', 'run', '--all', '--concurrency', '1', '--json'],
        environment,
      );
      await eventually(async () => (await readLockWaiters(client)).length > 0);

      backup.process.kill('SIGTERM');
      const text = 'Interrupted: waiting for the running archives.';
      await eventually(async () => backup.output.stderr.includes(text));
      await client.query('rollback');

      const { stdout, code } = await backup.ended;
      const outcomes = jsonLines(stdout).slice(0, -1);
      const [first, second, control] = outcomes;

      expect(first).to.include({ slug: 'acme', state: 'archived' });
      expect(second).to.include({ slug: 'globex', state: 'failed' });
      expect(second.error).to.include('interrupted before this tenant');
      // The archive of the control database names the archives that were made.
      expect(control).to.include({ slug: null, state: 'archived' });
      expect(code).to.equal(1);
    });

    await rm(target, { recursive: true });
  });
});
