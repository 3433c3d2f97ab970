import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { controlSql, useLogin, useWorld } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('states of a tenant', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let otherUrl: string;

  before(async () => {
    otherUrl = (await world.startAnotherServer()).url;
  });

  const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);
  /** Waits until both servers respond in this way. */
  const bothRespond = (client: Client, status: number, code?: string): Promise<unknown> =>
    eventually(async () => {
      const responses = [await client.get(path), await client.at(otherUrl).get(path)];
      return responses.every(
        ({ status: actual, body }) =>
          actual === status && (code === undefined || body.code === code),
      );
    }, announcedMs);

  it('every process rejects a suspended tenant, and serves a resumed one without a new login', async () => {
    await bothRespond(acme, 200);
    expect((await run('suspend', 'acme', '--yes')).code).to.equal(0);
    await bothRespond(acme, 403, 'tenant_inactive');
    const login = await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
      'X-Tenant': world.acme.guid,
    });
    expect([login.status, login.body.code]).to.deep.equal([403, 'tenant_required']);
    expect((await globex.get(path)).status).to.equal(200);
    expect((await run('suspend', 'acme', '--yes')).code, 'a second suspend').to.equal(0);
    expect((await run('resume', 'acme', '--json')).stdout).to.include('"active"');
    await bothRespond(acme, 200);
  });

  it('a transition that the state of the tenant does not allow is refused', async () => {
    for (const [args, exitCode] of [
      [['undelete', 'acme'], 0],
      [['resume', 'acme'], 0],
      [['purge', 'acme', '--yes'], 1],
      [['suspend', 'nobody', '--yes'], 1],
      [['delete', 'acme'], 2],
      [['purge', 'acme'], 1], // refused before it asks for confirmation
    ] as const) {
      expect((await run(...args)).code, args.join(' ')).to.equal(exitCode);
    }
    await bothRespond(acme, 200);
  });

  it('a deleted tenant is refused, and an undeleted one has all of its data again', async () => {
    expect((await acme.post(path, { Title: 'Kept' })).status).to.equal(201);
    expect((await run('delete', 'acme', '--yes')).code).to.equal(0);
    await bothRespond(acme, 403, 'tenant_inactive');
    expect((await run('undelete', 'acme')).code).to.equal(0);
    await bothRespond(acme, 200);
    expect((await acme.get(path)).body.map(({ Title }: { Title: string }) => Title)).to.include(
      'Kept',
    );
  });

  it('purge leaves one row in purged_tenants, and another tenant with the slug gets another database', async () => {
    const initech = await world.provision('initech');
    const client = await world.login(initech);
    await bothRespond(client, 200);

    await run('delete', 'initech', '--yes');
    const purged = await run('purge', 'initech', '--yes', '--json');

    const archives = [{ state: 'removed', target: null, removed: 0, left: [], error: null }];
    expect(purged.code).to.equal(0);
    expect(JSON.parse(purged.stdout)).to.deep.equal({
      slug: 'initech',
      status: 'purged',
      archives,
    });
    await bothRespond(client, 401);

    const [rowCounts] = await controlSql(
      world,
      `select (select count(*)::int from tenants where id = ?) as tenants,
              (select count(*)::int from signing_keys where tenant_id = ?) as keys,
              (select count(*)::int from users where tenant_id = ?) as users,
              (select count(*)::int from sessions where tenant_id = ?) as sessions,
              (select count(*)::int from purged_tenants where id = ?) as records`,
      Array(5).fill(initech.id),
    );
    expect(rowCounts).to.deep.equal({ tenants: 0, keys: 0, users: 0, sessions: 0, records: 1 });

    await withConnection(databaseUrl(postgresUrl(), 'postgres'), async client => {
      const sql = `select (select count(*)::int from pg_database where datname = $1)
              + (select count(*)::int from pg_roles where rolname = $1) as n`;
      expect((await client.query(sql, [initech.database])).rows[0].n).to.equal(0);
    });

    expect((await globex.get(path)).status).to.equal(200);

    const next = await world.provision('initech');
    expect(next.database).not.to.equal(initech.database);
    expect((await (await world.login(next)).get(path)).body).to.have.length(3);
  });
});
