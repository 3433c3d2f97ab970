import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import type { Client } from '../../support/client.ts';
import { makeNextBuild } from '../../support/next-build.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, documentOf } from '../../support/succeed.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { useEach } from '../../support/use.ts';
import { controlSql, createWorld, sql } from '../../support/world.ts';

describe('restored databases of a tenant', () => {
  const world = useEach(() => createWorld());
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;
  let admin: Client;

  const tenant = async (args: string[]) =>
    documentOf(await runCommand('scripts/tenant.ts', [...args, '--json'], environment));
  /**
   * Restores the newest archive beside the tenant.
   * @returns the name of the database
   */
  const restore = async (): Promise<string> => {
    const { code, document } = await tenant(['restore', 'acme', '--archive', 'latest']);
    expect(code, JSON.stringify(document)).to.equal(0);
    return document.database;
  };
  const currencies = async (client: Client): Promise<string[]> =>
    (await client.get('/api/v1/Currency', { 'Cache-Control': 'no-cache' })).body.map(
      ({ Code }: { Code: string }) => Code,
    );
  const databases = async (): Promise<Record<string, string>> => {
    const { document } = await tenant(['databases', 'acme']);
    return Object.fromEntries(
      document.map((each: { database: string; state: string }) => [each.database, each.state]),
    );
  };

  beforeEach(async () => {
    admin = await world.login(world.acme);
    const target = await mkdtemp(join(folder, 'target-'));
    environment = { ...world.environment, ...(await backupSettings(target)) };
    for (const Code of ['EUR', 'CHF']) await admin.post('/api/v1/Currency', { Code, Name: Code });
    await backUp(environment);
    await admin.post('/api/v1/Currency', { Code: 'NOK', Name: 'Krone' });
  });

  it('of several restored databases a swap takes the one that is named, and a dropped one is gone for ever', async () => {
    for (const command of ['swap', 'back']) {
      const kept = await tenant(['restore', command, 'acme', '--keep', '0', '--yes']);
      expect(kept.code, command).to.equal(2);
      expect(kept.document.code, command).to.equal('usage');
    }

    const first = await restore();
    const second = await restore();

    for (const command of ['swap', 'diff']) {
      const { code, document } = await tenant([
        'restore',
        command,
        'acme',
        ...(command === 'swap' ? ['--yes'] : []),
      ]);
      expect(code, command).to.equal(2);
      expect(document.hint).to.include(`--database ${first}`).and.include(`--database ${second}`);
    }

    const other = await tenant(['restore', 'back', 'acme', '--database', 'other', '--yes']);
    expect(other.code).to.equal(1);
    expect(other.document.message).to.equal('acme has no database other for that.');

    const swap = await tenant(['restore', 'swap', 'acme', '--database', second, '--yes']);
    expect(swap.document).to.include({ database: second });
    expect(await currencies(admin)).to.have.members(['EUR', 'CHF']);

    expect((await tenant(['databases', 'drop', 'acme', first, '--yes'])).code).to.equal(0);
    const dropped = await tenant(['restore', 'swap', 'acme', '--database', first, '--yes']);
    expect(dropped.code).to.equal(1);
    expect(dropped.document.message).to.equal(`acme has no database ${first} for that.`);
    expect(await databases()).to.deep.equal({ [world.acme.database]: 'kept', [second]: 'current' });

    const own = await tenant(['databases', 'drop', 'acme', second, '--yes']);
    expect(own.code).not.to.equal(0);
    expect(await currencies(admin)).to.have.members(['EUR', 'CHF']);
  });

  it('a clone of an archive is an isolated tenant of its own, in which the users who were named log in', async () => {
    await restore();

    const { code, document } = await tenant([
      'clone',
      'acme',
      'acme-old',
      '--archive',
      'latest',
      '--login',
      world.acme.admin.email,
    ]);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'acme-old', status: 'active', isolated: true });

    const { adminUrl } = world.acme;
    const clone = { ...world.acme, guid: document.guid, database: document.database, adminUrl };
    const client = await world.login(clone);
    expect(await currencies(client)).to.have.members(['EUR', 'CHF']);
    expect((await client.post('/api/v1/Currency', { Code: 'JPY', Name: 'Yen' })).status).to.equal(
      201,
    );
    expect(await currencies(admin)).to.have.members(['EUR', 'CHF', 'NOK']);

    for (const command of ['delete', 'purge']) await tenant([command, 'acme-old', '--yes']);
    expect(
      (await tenant(['databases'])).document.map(({ slug }: { slug: string }) => slug),
    ).to.deep.equal(['acme']);
  });

  it('a database that a swap has kept survives an upgrade: the newer build compares it, and puts it back at its own version', async () => {
    const versionOf = async (database: string): Promise<string | undefined> => {
      const adminUrl = databaseUrl(postgresUrl(), database);
      return (
        await sql<{ name: string }>(
          { adminUrl },
          'select name from migrations order by id desc limit 1',
        )
      )[0]?.name;
    };
    const swapped = await restore();
    expect((await tenant(['restore', 'swap', 'acme', '--yes'])).code).to.equal(0);
    const kept = world.acme.database;
    const next = await makeNextBuild();
    const upgraded = async (...args: string[]) =>
      documentOf(
        await runCommand(next.file('scripts/tenant.ts'), [...args, '--json'], environment),
      );
    try {
      expect((await upgraded('migrate', 'acme', '--despite-running')).code).to.equal(0);
      expect(await Promise.all([swapped, kept].map(versionOf))).to.deep.equal([
        next.head,
        next.currentHead,
      ]);

      const diff = await upgraded('restore', 'diff', 'acme');
      expect(diff.code, JSON.stringify(diff.document)).to.equal(0);
      expect(diff.document.tables.map(({ table }: { table: string }) => table)).to.include(
        'currencies',
      );
      expect(await versionOf(kept)).to.equal(next.head);

      const back = await upgraded('restore', 'back', 'acme', '--yes');
      expect(back.document, JSON.stringify(back.document)).to.include({ database: kept });
      const version = await controlSql(
        world,
        `select schema_version as version from tenants where slug = 'acme'`,
      );
      expect(version).to.deep.equal([{ version: next.head }]);
    } finally {
      await next.remove();
    }
  });

  it('data of a later build is refused by name', async () => {
    await controlSql(
      world,
      `update tenant_databases set schema_version = '9999-labels' where database_name = ?`,
      [await restore()],
    );

    const newer = await tenant(['restore', 'swap', 'acme', '--yes']);

    expect(newer.code).to.equal(1);
    expect(newer.document.message).to.equal(
      'The data is at version 9999-labels, of a later build: use that build.',
    );
  });
});
