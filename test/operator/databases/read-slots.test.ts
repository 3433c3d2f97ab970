import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import pg from 'pg';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { createPlainServer } from '../../support/plain-server.ts';
import { readSlot } from '../../support/read-slot.ts';
import { runCommand } from '../../support/run-command.ts';
import { succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('drop of a database with a replication slot that somebody reads, by a login without superuser rights', () => {
  const server = use(() =>
    createPlainServer('createdb createrole', ['wal_level=logical', 'max_wal_senders=4']),
  );
  const readers: pg.Client[] = [];
  // before the server of the test ends
  after(() => Promise.all(readers.map(reader => reader.end().catch(() => {}))));
  let environment: Record<string, string>;

  const tenant = (...args: string[]) => succeed(environment, 'tenant', args);
  const purge = (slug: string) =>
    runCommand('scripts/tenant.ts', ['purge', slug, '--yes'], environment);

  /** Makes a deleted tenant. */
  async function makeDeleted(slug: string): Promise<string> {
    await tenant('provision', slug, '--name', slug, '--admin-email', `a@${slug}.test`);
    const [{ database }] = JSON.parse(await tenant('databases', slug, '--json'));
    await tenant('delete', slug, '--yes');
    return database;
  }

  /** Reads the changes of a database, as a tool that copies it elsewhere does. */
  async function follow(database: string, login: 'replicator' | 'postgres'): Promise<string> {
    const url =
      login === 'postgres'
        ? server.superuserUrl(database)
        : databaseUrl(server.superuserUrl(database), database, { user: login, password: 'secret' });
    const slot = `slot_of_${login}`;
    await server.sql(`grant connect on database "${database}" to replicator`);
    await withConnection(server.superuserUrl(database), client =>
      client.query(`select pg_create_logical_replication_slot('${slot}', 'pgoutput')`),
    );
    const command = `START_REPLICATION SLOT "${slot}" LOGICAL 0/0 (proto_version '1', publication_names 'all')`;
    readers.push(await readSlot(url, { application: 'Copy Tool', command }));
    return url;
  }

  const databasesAndSlots = async (database: string): Promise<string[]> =>
    (
      await server.sql<{ name: string }>(
        `select datname as name from pg_database where datname = '${database}'
         union all select slot_name from pg_replication_slots where database = '${database}'`,
      )
    ).map(({ name }) => name);

  before(async () => {
    await server.sql(`create role replicator login replication password 'secret'`);
    environment = {
      DATABASE_URL: server.url('backoffice'),
      MASTER_KEY: randomBytes(32).toString('base64'),
    };
    await succeed(environment, 'control', ['migrate']);
    await tenant('provision', 'globex', '--name', 'Globex', '--admin-email', 'a@globex.test');
  });

  it('a purge names a reader that its login may not end, and the right that lets it; then it ends the reader, and drops the slot with the database', async () => {
    const database = await makeDeleted('initech');
    await follow(database, 'replicator');

    const plan = await tenant('purge', 'initech', '--dry-run');
    const refused = await purge('initech');

    expect(plan).to.include('Copy Tool of login replicator (pid ');
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.include('Copy Tool of login replicator (pid ');
    expect(refused.stderr).to.not.include('pg_drop_replication_slot');
    const [grant = ''] = /grant pg_signal_backend to "operator"/.exec(refused.stderr) ?? [];

    await server.sql(grant);
    await tenant('purge', 'initech', '--yes');
    expect(await databasesAndSlots(database)).to.deep.equal([]);
    await server.sql('revoke pg_signal_backend from operator');
  });

  it('a purge names the reader of a superuser with the statement that ends it, after which the reader cannot come back', async () => {
    const database = await makeDeleted('umbrella');
    const url = await follow(database, 'postgres');

    const refused = await purge('umbrella');

    expect(refused.code).to.equal(1);
    const [statement = ''] = /select pg_terminate_backend\(\d+\)/.exec(refused.stderr) ?? [];
    expect(await server.sql(statement)).to.deep.equal([{ pg_terminate_backend: true }]);
    const comesBack = await withConnection(url, async () => true).catch(({ code }) => code);
    expect(comesBack).to.equal('55000');

    await tenant('purge', 'umbrella', '--yes');
    expect(await databasesAndSlots(database)).to.deep.equal([]);
  });

  it('a purge ends the session of a temporary slot, as a table that is rewritten has, and the other tenant is served', async () => {
    const database = await makeDeleted('hooli');
    await server.sql(`grant connect on database "${database}" to replicator`);
    await server.sql('grant pg_signal_backend to operator');
    const login = { user: 'replicator', password: 'secret' };
    const session = new pg.Client({
      connectionString: databaseUrl(server.superuserUrl(database), database, login),
    });
    session.on('error', () => {});
    readers.push(session);
    await session.connect();
    await session.query(`select pg_create_logical_replication_slot('rewrite', 'pgoutput', true)`);

    await tenant('purge', 'hooli', '--yes');

    expect(await databasesAndSlots(database)).to.deep.equal([]);
    expect(JSON.parse(await tenant('list', '--json'))).to.have.length(1);
    await server.sql('revoke pg_signal_backend from operator');
  });
});
