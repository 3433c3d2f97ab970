import { rm } from 'node:fs/promises';
import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import { createDedicatedServer, type DedicatedServer } from '../../support/dedicated-server.ts';
import { jsonLines } from '../../support/json-lines.ts';
import { startOwnServer } from '../../support/own-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { quickSettings } from '../../support/test-server.ts';

describe('restore of all tenants of a lost server', () => {
  let server: DedicatedServer;
  let archives: string;
  let environment: Record<string, string>;

  before(async () => {
    [server, archives] = await Promise.all([createDedicatedServer(), makeServerFolder('archives')]);
    environment = { ...server.environment, ...(await backupSettings(archives)) };
    for (const slug of ['acme', 'globex', 'initech']) {
      const { tenant } = await server.provision(slug);
      await server.sql(
        `insert into currencies (code, name) values ('${slug}', '${slug}')`,
        tenant.databaseName,
      );
    }
    await backUp(environment);
  });
  after(async () => {
    await server.close();
    await rm(archives, { recursive: true, force: true });
  });

  const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);
  const lose = async (slug: string) =>
    server.sql(`drop database "${await server.databaseOf(slug)}" with (force)`);
  const codes = async (slug: string) =>
    server.sql(`select code from currencies`, await server.databaseOf(slug));

  // A drill restores those of all servers.
  it('restore --lost --server default restores every lost database, and no other, in one run with a report', async () => {
    const kept = await server.databaseOf('initech');
    await lose('acme');
    await lose('globex');

    const { code, stdout, stderr } = await run(
      'restore',
      '--lost',
      '--server',
      'default',
      '--concurrency',
      '2',
      '--json',
    );
    expect(code, stderr).to.equal(0);

    const lines = jsonLines(stdout);
    expect(lines.slice(0, -1).map(({ slug, state }) => [slug, state])).to.have.deep.members([
      ['acme', 'restored'],
      ['globex', 'restored'],
    ]);
    expect(lines.at(-1)).to.include({ tenants: 2, restored: 2, failed: 0 });

    for (const slug of ['acme', 'globex']) {
      expect(await codes(slug)).to.deep.equal([{ code: slug }]);
    }
    expect(await server.databaseOf('initech')).to.equal(kept);
  });

  it('after the loss of a whole machine, control restore --all restores the control database and every tenant', async () => {
    await succeed(environment, 'tenant', ['backup', 'run', '--all']);
    for (const slug of ['acme', 'globex', 'initech']) await lose(slug);
    await server.sql('drop database office with (force)');
    const { code, stderr } = await runCommand(
      'scripts/control.ts',
      ['restore', '--all'],
      environment,
    );
    expect(code, stderr).to.equal(0);
    for (const slug of ['acme', 'globex', 'initech']) {
      expect(await codes(slug)).to.deep.equal([{ code: slug }]);
    }
  });

  it('a tenant that was purged after the newest archive of the control database fails control restore --all by name, until it is purged again', async () => {
    await server.provision('soylent');
    await succeed(environment, 'tenant', ['backup', 'run', '--all']);
    for (const command of ['delete', 'purge']) {
      await succeed(environment, 'tenant', [command, 'soylent', '--yes']);
    }
    await lose('globex');
    await server.sql('drop database office with (force)');
    const restore = () => runCommand('scripts/control.ts', ['restore', '--all'], environment);

    const { code, stdout } = await restore();

    expect(code).to.equal(1);
    expect(stdout).to.include('globex: restored');
    expect(stdout).to.include(
      'soylent: failed: it has no archive. If it was purged after the control database was archived, purge it again: ' +
        'bin/backoffice delete soylent --yes, then bin/backoffice purge soylent --yes',
    );
    expect(stdout).to.include('Run the command again for the tenants that failed.');

    await succeed(environment, 'tenant', ['backup', 'init', '--take-over']);
    for (const command of ['delete', 'purge']) {
      await succeed(environment, 'tenant', [command, 'soylent', '--yes']);
    }
    const again = await restore();
    expect(again.code, again.stderr).to.equal(0);
    expect(again.stdout).to.include('Everybody logs in again.');
  });

  it('a tenant that cannot be restored fails alone, and the exit code is 1', async () => {
    await server.provision('umbrella'); // has no archive
    await lose('umbrella');
    await lose('acme');
    const { code, stdout } = await run('restore', '--lost', '--all');
    expect(code).to.equal(1);
    expect(stdout)
      .to.match(/acme: restored/)
      .and.match(/umbrella: failed: it has no archive/);
    expect(stdout)
      .to.include('1 tenant restored, 1 failed')
      .and.include('bin/backoffice restore --lost --all');
    expect(await codes('acme')).to.deep.equal([{ code: 'acme' }]);

    for (const command of ['delete', 'purge']) {
      await succeed(environment, 'tenant', [command, 'umbrella', '--yes']);
    }
  });

  it('restore --lost without a tenant refuses what does not say which tenants, and what only one tenant can have', async () => {
    for (const args of [
      ['--lost'],
      ['--lost', '--dry-run'],
      ['--lost', '--all', '--server', 'default'],
      ['--archive', 'latest'],
      [],
    ]) {
      const { code, stderr } = await run('restore', ...args);
      expect(code, args.join(' ')).to.equal(2);
      expect(stderr).to.include('Name a tenant, or give --lost with either --server or --all');
    }

    for (const args of [
      ['acme', '--lost', '--all'],
      ['--all'],
      ['acme', '--server', 'default'],
      ['--lost', '--all', '--archive', 'latest'],
    ]) {
      const { code, stderr } = await run('restore', ...args);
      expect(code, `${args.join(' ')}: ${stderr}`).to.equal(2);
      expect(stderr, args.join(' ')).to.match(/^[^\n]+\n$/);
    }

    expect((await run('restore', '--lost', '--server', 'nowhere')).stderr).to.include(
      'There is no server nowhere',
    );
  });

  it('while a server does not run, restore --lost says of each of its tenants what is wrong, and what to do first', async () => {
    const second = await startOwnServer('second', quickSettings);

    try {
      for (const [args, input] of [
        [['server', 'add', 'second'], second.url],
        [provision('hooli', '--server', 'second'), ''],
        [['backup', 'run', 'hooli'], ''],
      ] as const) {
        const { code, stderr } = await runCommand('scripts/tenant.ts', args, environment, input);
        expect(code, stderr).to.equal(0);
      }
      await second.crash();

      const { code, stdout } = await run('restore', '--lost', '--server', 'second');

      expect(code).to.equal(1);
      expect(stdout).to.include(
        'hooli: failed: PostgreSQL cannot be used: nothing listens at its address. Start the server',
      );

      await second.restart();
      for (const args of [
        ['delete', 'hooli', '--yes'],
        ['purge', 'hooli', '--yes'],
        ['server', 'remove', 'second', '--yes'],
      ]) {
        await succeed(environment, 'tenant', args);
      }
    } finally {
      await second.close();
    }
  });
});

function provision(slug: string, ...options: string[]): string[] {
  return ['provision', slug, '--name', slug, '--admin-email', `a@${slug}.test`, ...options];
}
