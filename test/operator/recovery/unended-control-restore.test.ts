import { expect } from 'chai';
import { useArchivedServer } from '../../support/archived-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { type Script, succeed } from '../../support/succeed.ts';

describe('a restore of the control database that has not ended', () => {
  const { server, settings } = useArchivedServer();
  let environment: Record<string, string>;
  /** The first archive of the control database. */
  let first: string;

  const run = (script: Script, ...args: string[]) =>
    succeed(environment, script, [...args, '--json']);
  const restore = async (...args: string[]) =>
    JSON.parse((await run('control', 'restore', ...args)).split('\n')[0] ?? '');
  const dropControl = () => server.sql('drop database office with (force)');
  const tenants = async () =>
    (
      await server.control<{ slug: string; status: string }>(
        'select slug, status from tenants order by slug',
      )
    ).map(({ slug, status }) => `${slug} ${status}`);

  before(async () => {
    environment = settings();
    [first = ''] = JSON.parse(await run('tenant', 'backup', 'list'))
      .filter(({ tenant }: { tenant: string | null }) => tenant === null)
      .map(({ name }: { name: string }) => name);
  });

  it('until a restore of the control database has ended, no command fills the control database, and doctor names what is left', async () => {
    const failure = async (...args: string[]): Promise<string> => {
      const { code, stderr } = await runCommand('scripts/tenant.ts', args, environment);
      expect(code, args.join(' ')).to.equal(1);
      return stderr;
    };
    const unfinished =
      /^A restore of the control database has begun, .* "office_restoring"\. .*: bin\/backoffice control restore\n$/;
    await run('tenant', 'backup', 'run', '--all');
    await dropControl();
    await server.sql('create database office_restoring');
    expect(await failure('list')).to.match(unfinished);
    const { BACKUP_TARGET: _, ...withoutTarget } = environment;
    expect((await runCommand('scripts/control.ts', ['migrate'], withoutTarget)).code).to.equal(0);
    expect(
      await failure('provision', 'initech', '--name', 'I', '--admin-email', 'i@initech.test'),
    ).to.match(unfinished);
    const { source } = await restore();
    expect(await tenants()).to.deep.equal(['acme active', 'globex active']);

    await server.sql('create database office_restoring');
    await server.control(`comment on table tenants is 'restored from ${source}'`);
    const findings = async (): Promise<{ remedy: string }[]> => {
      const { stdout } = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
      return JSON.parse(stdout).findings.filter(
        ({ check }: { check: string }) => check === 'unfinished_control_restore',
      );
    };
    expect((await findings()).map(({ remedy }) => remedy)).to.deep.equal([
      'If the control database in use is the right one, drop the other: ' +
        `psql "$DATABASE_URL" -c 'drop database "office_restoring"'`,
      `Run it again, with --all if lost tenants are to be restored: bin/backoffice control restore --archive ${source}`,
    ]);
    const other = await runCommand(
      'scripts/control.ts',
      ['restore', '--archive', first],
      environment,
    );
    expect([other.code, other.stderr.includes(`--archive ${source}`)]).to.deep.equal([1, true]);
    await run('control', 'restore', '--archive', source);
    await server.sql('drop database office_restoring');
    expect(await findings()).to.deep.equal([]);
  });
});
