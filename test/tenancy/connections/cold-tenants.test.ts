import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { RunningServer } from '../../../src/service/server.ts';
import { eventually } from '../../support/eventually.ts';
import { controlSql, sql, useLogin, useWorld } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('first request of a tenant', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let cold: { service: RunningServer; url: string };

  beforeEach(async () => {
    cold = await world.startAnotherServer();
    expect(opened()).to.equal(0);
  });
  afterEach(() => cold.service.stop());

  const opened = (): number => cold.service.databases.budgets.usage.open;

  /** Runs `work` while no row of some tables of the control database can be read. */
  const whileLocked = <T>(tables: string, work: (unlock: () => Promise<unknown>) => Promise<T>) =>
    withConnection(world.config.databaseUrl ?? '', async holder => {
      await holder.query(`begin; lock table ${tables} in access exclusive mode`);
      return work(() => holder.query('rollback'));
    });

  it('the tenants are not looked up, because the process has loaded them at its start', async () => {
    const readBoth = async (): Promise<boolean> => {
      const { service, url } = await world.startAnotherServer();
      const statuses = await whileLocked('tenants, tenant_slugs, signing_keys, servers', () =>
        Promise.all([acme, globex].map(async client => (await client.at(url).get(path)).status)),
      );
      await service.stop();
      return statuses.every(status => status === 200);
    };

    // A process that has not heard of the control database in time trusts nothing that it has
    // loaded: it is another one that has then to show this.
    await eventually(readBoth, 300_000);
  });

  it('a change of a tenant since the start of the process is noticed', async () => {
    const setStatus = (status: string) =>
      controlSql(
        world,
        `update tenants set status = '${status}' where guid = '${world.acme.guid}'`,
      );

    await setStatus('suspended');
    try {
      const { status } = await eventually(async () => {
        const response = await acme.at(cold.url).get(path);
        return response.status === 200 ? undefined : response;
      });
      expect(status).to.equal(403);
      expect((await globex.at(cold.url).get(path)).status).to.equal(200);
    } finally {
      await setStatus('active');
    }
  });

  it('the connection of a tenant is opened while the session of the token is looked up, and answers afterwards', async () => {
    await whileLocked('sessions', async unlock => {
      const responses = Promise.all([acme, globex].map(client => client.at(cold.url).get(path)));
      await eventually(() => opened() === 2);

      await unlock();
      for (const { status } of await responses) expect(status).to.equal(200);
    });

    // each of the requests used the connection that was opened for it
    expect(opened()).to.equal(2);
  });

  it('a request with a token whose session was revoked reads nothing on the connection', async () => {
    const revoked = await world.login(world.acme);
    await controlSql(
      world,
      `update sessions set revoked_at = now()
        where id = (select id from sessions order by created_at desc limit 1)`,
    );

    const { status } = await revoked.at(cold.url).get(path);

    expect(status).to.equal(401);
    const last = await eventually(async () => {
      const [connection] = await sql<{ query: string }>(
        world.acme,
        `select query from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and state = 'idle'`,
      );
      return connection?.query;
    });
    expect(last, 'the last statement on the connection').to.match(/from tenant_identity/);
  });

  it('a token with a wrong signature opens no database', async () => {
    const token = acme.tokens?.accessToken ?? '';
    const forged = `${token.slice(0, -4)}${token.endsWith('AAAA') ? 'BBBB' : 'AAAA'}`;

    expect((await acme.at(cold.url).withToken(forged).get(path)).status).to.equal(401);
    expect(opened()).to.equal(0);
  });
});
