import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { runScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('The life of a tenant', () => {
  let world: World;
  let admin: Client;
  let elsewhere: Client;
  let neighbour: Client;

  before(async () => {
    world = await createWorld();
    const other = await world.startAnotherServer();
    admin = await world.login(world.acme);
    elsewhere = admin.at(other.url);
    neighbour = await world.login(world.globex);
  });
  after(() => world.close());

  const run = (...args: string[]) => runScript('scripts/tenant.ts', args, world.environment);
  /** Both processes answer so, within a second. */
  const everywhere = (status: number, code?: string): Promise<unknown> =>
    eventually(async () => {
      const answers = [await admin.get(path), await elsewhere.get(path)];
      return answers.every(answer => answer.status === status && (code === undefined || answer.body.code === code));
    }, 1_000);

  it('is refused in every process within a second of being suspended, and served again when resumed, without a new login', async () => {
    await everywhere(200);
    expect((await run('suspend', 'acme')).code).to.equal(0);
    await everywhere(403, 'tenant_inactive');
    const login = await world.anonymous.post('/api/v1/auth/login', world.acme.admin, { 'X-Tenant': world.acme.guid });
    expect([login.status, login.body.code]).to.deep.equal([403, 'tenant_required']);
    expect((await neighbour.get(path)).status).to.equal(200);
    expect((await run('suspend', 'acme')).code, 'a second time').to.equal(0);
    expect((await run('resume', 'acme', '--json')).stdout).to.include('"active"');
    await everywhere(200);
  });

  it('goes only where its state allows', async () => {
    for (const [args, wrong] of [
      [['restore', 'acme'], 0],
      [['resume', 'acme'], 0],
      [['purge', 'acme', '--yes'], 1],
      [['suspend', 'nobody'], 1],
      [['delete', 'acme'], 2],
      [['purge', 'acme'], 1], // it is not asked what cannot be done anyway
    ] as const) {
      expect((await run(...args)).code, args.join(' ')).to.equal(wrong);
    }
    await everywhere(200);
  });

  it('keeps everything while it is deleted, and comes back whole', async () => {
    expect((await admin.post(path, { Title: 'Kept' })).status).to.equal(201);
    expect((await run('delete', 'acme', '--yes')).code).to.equal(0);
    await everywhere(403, 'tenant_inactive');
    expect((await run('restore', 'acme')).code).to.equal(0);
    await everywhere(200);
    expect((await admin.get(path)).body.map(({ Title }: { Title: string }) => Title)).to.include('Kept');
  });

  it('leaves nothing but a line of record when it is purged, and frees its slug but never the name of its database', async () => {
    await run('delete', 'acme', '--yes');
    const purged = await run('purge', 'acme', '--yes', '--json');
    expect([purged.code, JSON.parse(purged.stdout)]).to.deep.equal([0, { slug: 'acme', status: 'purged' }]);
    await everywhere(401);
    const left = await world.control.em.fork().execute(
      `select (select count(*)::int from tenants where id = ?) as tenants,
              (select count(*)::int from signing_keys where tenant_id = ?) as keys,
              (select count(*)::int from users where tenant_id = ?) as users,
              (select count(*)::int from sessions where tenant_id = ?) as sessions,
              (select count(*)::int from purged_tenants where id = ?) as records`,
      Array(5).fill(world.acme.id),
    );
    expect(left[0]).to.deep.equal({ tenants: 0, keys: 0, users: 0, sessions: 0, records: 1 });
    await withConnection(databaseUrl(postgresUrl(), 'postgres'), async client => {
      const sql =
        'select (select count(*)::int from pg_database where datname = $1) + (select count(*)::int from pg_roles where rolname = $1) as n';
      expect((await client.query(sql, [world.acme.database])).rows[0].n).to.equal(0);
    });
    expect((await neighbour.get(path)).status).to.equal(200);
    const again = await world.provision('acme');
    expect(again.database).not.to.equal(world.acme.database);
    expect((await (await world.login(again)).get(path)).body).to.have.length(3);
  });
});
