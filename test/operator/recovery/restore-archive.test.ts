import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { addByHand, handMadeDifference, readAddedByHand } from '../../support/added-by-hand.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import type { Client } from '../../support/client.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, documentOf } from '../../support/succeed.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { useEach } from '../../support/use.ts';
import { controlSql, createWorld, sql } from '../../support/world.ts';

/**
 * Between two requests: the commands, and the tests beside this one, need the machine more than
 * the load does.
 */
const pauseMs = 40;

describe('restore of a tenant from an archive', () => {
  const world = useEach(() => createWorld());
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;
  let admin: Client;
  /** The objects that an operator has added to the database of acme before it was archived. */
  let addedByHand: object[];

  const tenant = async (args: string[]) =>
    documentOf(await runCommand('scripts/tenant.ts', [...args, '--json'], environment));
  const currencies = async (client: Client): Promise<string[]> =>
    (await client.get('/api/v1/Currency', { 'Cache-Control': 'no-cache' })).body.map(
      ({ Code }: { Code: string }) => Code,
    );

  const databases = async (): Promise<Record<string, string>> => {
    const { document } = await tenant(['databases', 'acme']);
    expect(document, JSON.stringify(document)).to.be.an('array');
    return Object.fromEntries(
      document.map((each: { database: string; state: string }) => [each.database, each.state]),
    );
  };
  /** Returns whether a database has the stamp of acme, and its role may log in. */
  const letsIn = async (database: string): Promise<boolean> => {
    const url = databaseUrl(postgresUrl(), database);
    const { rows } = await withConnection(url, client =>
      client.query<{ stamp: string; login: boolean }>(
        'select guid as stamp, rolcanlogin as login from tenant_identity, pg_roles where rolname = current_database()',
      ),
    );
    const [{ stamp, login } = { stamp: '', login: false }] = rows;
    expect(login).to.equal(stamp === world.acme.guid);
    return login;
  };
  // Other tests have databases on this server, too.
  const findings = async (): Promise<{ problem: string; check: string; tenant: string }[]> => {
    const { stdout } = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    // Other worlds on this server have copies of the same two tenants.
    return JSON.parse(stdout).findings.filter(
      ({
        check,
        tenant: slug,
        problem,
      }: {
        check: string;
        tenant: string | null;
        problem: string;
      }) => check !== 'copied_database' && (slug !== null || problem.includes(world.acme.database)),
    );
  };

  beforeEach(async () => {
    admin = await world.login(world.acme);
    const target = await mkdtemp(join(folder, 'target-'));
    environment = { ...world.environment, ...(await backupSettings(target)) };
    await admin.post('/api/v1/Currency', { Code: 'EUR', Name: 'Euro' });
    await admin.post('/api/v1/Currency', { Code: 'CHF', Name: 'Franc' });
    await sql(world.acme, addByHand);
    addedByHand = await sql(world.acme, readAddedByHand);
    await backUp(environment);
    await admin.post('/api/v1/Currency', { Code: 'NOK', Name: 'Krone' });
    await admin.put('/api/v1/Currency/1', { Code: 'EUR', Name: 'Changed' });
    await sql(world.acme, `delete from currencies where code = 'CHF'`);
  });

  it('the newest archive is restored into a database that lets nobody in; diff names what has changed since, and doctor what was added by hand', async () => {
    const { code, document } = await tenant(['restore', 'acme', '--archive', 'latest']);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'acme', server: 'default' });
    expect(await databases()).to.deep.equal({
      [world.acme.database]: 'current',
      [document.database]: 'filled',
    });

    const diff = await tenant(['restore', 'diff', 'acme']);
    expect(diff.code, JSON.stringify(diff.document)).to.equal(0);
    expect(diff.document).to.include({ tenant: 'acme', database: document.database });

    const table = diff.document.tables.find(
      ({ table: name }: { table: string }) => name === 'currencies',
    );
    expect(table).to.deep.equal({
      table: 'currencies',
      added: 1,
      changed: 1,
      gone: 1,
      keys: { added: ['3'], changed: ['1'], gone: ['2'] },
    });
    expect(diff.document.tables.map((each: { table: string }) => each.table)).to.include(
      'audit_log',
    );

    expect(await letsIn(document.database)).to.equal(false);
    expect(await letsIn(world.acme.database)).to.equal(true);

    const found = await findings();
    expect(found.map(({ check, tenant: of }) => `${of}: ${check}`)).to.deep.equal(
      found.map(() => 'acme: schema_drift'),
    );
    expect(found.some(({ problem }) => handMadeDifference.test(problem))).to.equal(true);
    expect(await controlSql(world, 'select slug from tenants order by slug')).to.deep.equal([
      { slug: 'acme' },
      { slug: 'globex' },
    ]);
  });

  it('swap puts the restored data in place and back takes it out again, and no request of the tenant fails', async () => {
    const other = await world.login(world.globex);
    const { database: restored } = (await tenant(['restore', 'acme', '--archive', 'latest']))
      .document;

    const statuses: number[] = [];
    let isRunning = true;
    const reading = (async () => {
      while (isRunning) {
        statuses.push(
          (await admin.get('/api/v1/Currency', { 'Cache-Control': 'no-cache' })).status,
        );
        await delay(pauseMs);
      }
    })();

    const swap = await tenant(['restore', 'swap', 'acme', '--yes']);
    expect(swap.code, JSON.stringify(swap.document)).to.equal(0);
    expect(swap.document).to.include({ tenant: 'acme', database: restored });
    expect(await currencies(admin)).to.have.members(['EUR', 'CHF']);

    expect(await databases()).to.deep.equal({
      [world.acme.database]: 'kept',
      [restored]: 'current',
    });
    expect(await letsIn(world.acme.database)).to.equal(false);
    expect(await letsIn(restored)).to.equal(true);

    const created = await admin.post('/api/v1/Currency', { Code: 'SEK', Name: 'Krona' });
    expect(created.status).to.equal(201);
    expect(created.body.Id).to.equal(4); // the data before the swap have a currency 3
    const entries = (await admin.get('/api/v1/AuditLog?resource=Currency')).body;
    expect(entries[0]).to.deep.include({ Action: 'create' });

    const again = await tenant(['restore', 'swap', 'acme', '--yes']);
    expect(again.document).to.include({ database: restored, pauseMs: 0 });

    const after = (await tenant(['restore', 'diff', 'acme'])).document.tables.find(
      ({ table }: { table: string }) => table === 'currencies',
    );
    expect(after.keys, 'what the former data has in comparison').to.deep.equal({
      added: ['3'],
      changed: ['1'],
      gone: ['2', '4'],
    });

    const back = await tenant(['restore', 'back', 'acme', '--yes']);
    expect(back.document).to.include({ tenant: 'acme', database: world.acme.database });
    expect(await currencies(admin)).to.have.members(['EUR', 'NOK']);
    expect((await tenant(['restore', 'back', 'acme', '--yes'])).document).to.include({
      pauseMs: 0,
    });

    isRunning = false;
    await reading;
    expect(new Set(statuses)).to.deep.equal(new Set([200]));
    expect((await other.get('/api/v1/Currency')).status).to.equal(404); // none
  });

  it('a lost database is restored by one command with a new name, and an existing one is left as it is', async () => {
    const refused = await tenant(['restore', 'acme', '--lost']);
    expect(refused.document.message).to.match(/has database .*: nothing was changed/);

    const { document: ready } = await tenant(['restore', 'acme', '--archive', 'latest']);
    const restored: string = ready.database;
    const before = await tenant(['show', 'acme']);
    // The databases of acme in the worlds of other tests have the same identity: to doctor, one
    // of them is renamed.
    const initech = await world.provision('initech');
    for (const { database } of [before.document, initech]) {
      await withConnection(postgresUrl(), client =>
        client.query(`drop database "${database}" with (force)`),
      );
    }

    const missing = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    expect(missing.stdout).to.include('restore initech --lost');

    const beside = await tenant(['restore', 'acme', '--archive', 'latest']);
    expect(beside.document.message).to.match(/does not have database .*: nothing was changed/);
    expect(beside.document.hint).to.equal('Restore in its place, with --lost.');
    for (const more of [['--dry-run'], ['--yes']]) {
      const swap = await tenant(['restore', 'swap', 'acme', '--database', restored, ...more]);
      expect(JSON.stringify(swap.document)).to.include('bin/backoffice restore acme --lost');
    }

    const { code, document } = await tenant(['restore', 'acme', '--lost']);
    expect(code, JSON.stringify(document)).to.equal(0);
    expect(document).to.include({ slug: 'acme', status: 'active' });
    expect(document.database).not.to.equal(before.document.database);

    const roles = await withConnection(postgresUrl(), client =>
      client.query('select from pg_roles where rolname = $1', [before.document.database]),
    );
    expect(roles.rowCount).to.equal(0);
    const drop = await tenant(['databases', 'drop', 'acme', restored, '--yes']);
    expect(drop.code, JSON.stringify(drop.document)).to.equal(0);

    expect(await currencies(admin)).to.have.members(['EUR', 'CHF']);
    expect((await admin.post('/api/v1/Currency', { Code: 'SEK', Name: 'Krona' })).status).to.equal(
      201,
    );
  });

  it('a database that was renamed, to be kept, loses its login role when its tenant is restored in a new one', async () => {
    const { database } = (await tenant(['show', 'acme'])).document;
    const onServer = (text: string) => withConnection(postgresUrl(), client => client.query(text));

    await onServer(`
      select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '${database}'`);
    await onServer(`alter database "${database}" rename to "${database}_broken"`);

    const { code, document } = await tenant(['restore', 'acme', '--lost']);
    expect(code, JSON.stringify(document)).to.equal(0);

    const { rows } = await onServer(`
      select exists (select from pg_roles where rolname = '${database}') as role,
             exists (select from pg_database where datname = '${database}_broken') as database`);
    expect(rows).to.deep.equal([{ role: false, database: true }]);

    expect(await currencies(admin)).to.have.members(['EUR', 'CHF']);
    await onServer(`drop database "${database}_broken"`);
  });

  it('tables and columns that were added by hand are restored with their data and types', async () => {
    const { database } = (await tenant(['restore', 'acme', '--archive', 'latest'])).document;
    expect((await tenant(['restore', 'swap', 'acme', '--yes'])).code).to.equal(0);
    const onDatabase = async (text: string) =>
      (await withConnection(databaseUrl(postgresUrl(), database), client => client.query(text)))
        .rows;

    expect(addedByHand).to.have.length(1);
    expect(await onDatabase(readAddedByHand)).to.deep.equal(addedByHand);

    const restored = await tenant(['restore', 'acme', '--archive', 'latest']);
    await onDatabase('alter table currencies add later integer; create table later (id integer)');

    const diff = await tenant([
      'restore',
      'diff',
      'acme',
      '--database',
      restored.document.database,
    ]);
    expect(diff.code, JSON.stringify(diff.document)).to.equal(0);
    expect(diff.document.tables).to.deep.equal([]);
  });
});
