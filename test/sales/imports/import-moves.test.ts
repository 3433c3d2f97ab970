import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { useMigrationFleet } from '../../operator/schema/migration-fleet.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { useRestoredTenant } from '../../support/restored-tenant.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { use } from '../../support/use.ts';
import { sql, type World } from '../../support/world.ts';

const csv = { 'Content-Type': 'text/csv' };
/**
 * The sessions that wait for an advisory lock in the connected database, as an operator for
 * that of imports.
 */
const waitingOperators = `
  select from pg_locks where locktype = 'advisory' and not granted
     and database = (select oid from pg_database where datname = current_database())`;

const post = (client: Client, file: string) =>
  client.post(
    '/api/v1/Imports?resource=Country&mode=upsert',
    `CountryCode,CountryName\n${file}`,
    csv,
  );

/**
 * A statement of a request may take 8 s, so no row is locked for as long: an import waits for
 * one after the other.
 */
const stepMs = 1_500;
const steps = Array.from({ length: 35 }, (_, index) => `R${index}`);
/**
 * The number of spaces behind a name, which are trimmed and fill a batch: each row of a step is
 * a statement of its own.
 */
const padding = ' '.repeat(64 * 1024);
/**
 * Only the last row changes a record: the copy of a move waits for transactions that have
 * written.
 */
const slowFile = `${steps.map(code => `${code},Present${padding}\n`).join('')}F,Changed\n`;

/**
 * Begins an import of acme, and then a command that must wait for it. Lets the import end when
 * the command waits, and a further import was refused in another process.
 * @returns the response of the import, and what the command returns
 */
async function importBeside<T>(world: World, client: Client, command: () => Promise<T>) {
  const { service, url } = await world.startAnotherServer();
  await post(client, `F,Present\n${steps.map(code => `${code},Present\n`).join('')}`);
  try {
    return await withConnection(world.acme.adminUrl, async locked => {
      await locked.query('begin');
      for (const code of steps.toReversed()) {
        await locked.query(
          `savepoint ${code}; select from countries where country_code = '${code}' for update`,
        );
      }
      const importing = post(client, slowFile);
      const isBlocked =
        'select from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))';
      await eventually(async () => (await locked.query(isBlocked)).rows.length > 0);

      const running = command();
      const isWaiting = async () => (await locked.query(waitingOperators)).rows.length > 0;
      const ended = importing.then(({ status }) =>
        expect.fail(`the import has ended with ${status}`),
      );
      for (const code of steps) {
        if (await Promise.race([eventually(isWaiting, stepMs).catch(() => false), ended])) break;
        await locked.query(`rollback to savepoint ${code}`);
      }
      expect(await isWaiting(), 'the command waits').to.equal(true);

      const refused = await post(client.at(url), 'F,Refused\n');
      expect(refused.status).to.equal(503);
      expect(refused.headers.get('retry-after')).to.equal('5');
      await locked.query('rollback');
      return { imported: await importing, result: await running };
    });
  } finally {
    await service.stop();
  }
}

/** The report of the import. */
const applied = { Applied: true, Updated: 1, Unchanged: steps.length };

describe('imports of a tenant that is moved', () => {
  const servers = use(() => TwoServers.start({ ACQUIRE_TIMEOUT_MS: '9000' }));

  it('a move waits for the import that runs, takes its rows along, and imports go on in the new database', async () => {
    const { world } = servers;
    const client = await world.login(world.acme);

    const move = () => servers.move('acme', '--to', 'second');
    const { imported, result } = await importBeside(world, client, move);

    expect(imported.status, JSON.stringify(imported.body)).to.equal(200);
    expect(imported.body).to.include(applied);
    expect(result).to.include({ from: 'default', to: 'second' });
    const moved = await withConnection(await servers.currentUrl(), async database => {
      const { rows } = await database.query(`select from countries where country_name = 'Changed'`);
      return rows.length;
    });
    expect(moved).to.equal(1);
    const after = await eventually(async () => {
      const response = await post(client, 'BB,Name\n');
      return response.status === 200 && response;
    });
    expect(after.body).to.include({ Applied: true, Created: 1 });
  });
});

describe('imports of a tenant that is migrated', () => {
  const { world, migrate, versions, next } = useMigrationFleet(2);

  it('a migration waits for the import that runs, and refuses those that begin', async () => {
    const client = await world.login(world.acme);

    const { imported, result } = await importBeside(world, client, () => migrate('acme'));

    expect(imported.status, JSON.stringify(imported.body)).to.equal(200);
    expect(imported.body).to.include(applied);
    expect(result.code, result.stderr).to.equal(0);
    expect((await versions()).acme).to.equal(next.head);
    const changed = await sql(world.acme, `select from countries where country_name = 'Changed'`);
    expect(changed).to.have.length(1);
  });
});

describe('imports of a tenant whose restored database is swapped', () => {
  const { world, run } = useRestoredTenant();

  it('a swap waits for the import that runs, keeps its rows in the former database, and refuses those that begin', async () => {
    const client = await world.login(world.acme);

    const { imported } = await importBeside(world, client, () =>
      run('restore', 'swap', 'acme', '--yes'),
    );

    expect(imported.status, JSON.stringify(imported.body)).to.equal(200);
    expect(imported.body).to.include(applied);
    const changed = `select from countries where country_name = 'Changed'`;
    expect(await sql(world.acme, changed)).to.have.length(1);
    const after = await eventually(async () => {
      const response = await post(client, 'BB,Name\n');
      return response.status === 200 && response;
    });
    expect(after.body).to.include({ Applied: true, Created: 1 });
    expect(await sql(world.acme, `select from countries where country_code = 'BB'`)).to.have.length(
      0,
    );
  });
});
