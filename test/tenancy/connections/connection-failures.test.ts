import { expect } from 'chai';
import type { TenantRecord } from '../../../src/control/records.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { databaseProblem } from '../../../src/lib/postgres/database-error.ts';
import { readServerIdentity } from '../../../src/lib/postgres/server-address.ts';
import { errorOf } from '../../support/errors.ts';
import { eventually } from '../../support/eventually.ts';
import { startSilentServer } from '../../support/silent-server.ts';
import { use } from '../../support/use.ts';
import {
  type BudgetHarness,
  connectHealthy,
  createBudgetHarness,
  inParallel,
  queryServer,
  useConnection,
} from './budget-harness.ts';

/** Far above what 20 queries take on a busy machine. */
const acquireTimeoutMs = 60_000;

describe('connections that fail', () => {
  let harness: BudgetHarness;

  before(async () => {
    harness = await createBudgetHarness();
  });
  afterEach(() => harness.cleanUp());
  after(() => harness.world.close());

  it('a read whose connection is cut succeeds on another one, and no read gets a dying connection', async () => {
    const databases = harness.openDatabases(3);
    const driver = databases.open(harness.tenants[0]);
    const types = { getTypeParser: () => String } as never;
    const kill = `select pg_terminate_backend(pid) from pg_stat_activity
                   where query like $1 and state = 'active' and pid <> pg_backend_pid()`;

    await withConnection(harness.world.acme.adminUrl, async session => {
      for (let i = 0; i < 3; i++) {
        await session.query('select pg_advisory_lock(1)');
        const text = `select pg_advisory_xact_lock_shared(1) as "cut ${i}"`;
        const read = driver.reads.readCacheable({ name: `waiting_${i}`, text, values: [], types });
        await eventually(() => queryServer(kill, [`%"cut ${i}"%`]).then(rows => rows.length > 0));

        await session.query('select pg_advisory_unlock(1)');
        expect((await read).rows).to.have.length(1);
      }
    });

    expect(databases.budgets.usage).to.include({ inUse: 0, waiting: 0 });
  });

  it('a connection whose server has become read-only is replaced by a new one, which looks its name up again', async () => {
    const { pools } = harness.createBudget({ max: 1 });
    const pidOf = async (client: Awaited<ReturnType<typeof connectHealthy>>) =>
      (await client.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]?.pid;
    const demoted = await connectHealthy(pools[0]);
    const pid = await pidOf(demoted);
    await demoted.query('set default_transaction_read_only = on');

    const refused = await errorOf(demoted.query(`update units_of_measure set code = code`));
    demoted.release();

    expect(refused).to.include({ code: '25006' });
    const next = await connectHealthy(pools[0]);
    expect(await pidOf(next)).to.not.equal(pid);
    next.release();
  });

  it('twelve connections that do not finish opening block no other one, even before they time out', async () => {
    const { pools, addPool } = harness.createBudget({ max: 20, openMs: 20_000, maxWaitMs: 20_000 });
    await withConnection(harness.world.acme.adminUrl, async session => {
      await session.query('begin; lock table tenant_identity in access exclusive mode');
      const [acme] = harness.tenants;
      const blocked = Array.from({ length: 12 }, () => addPool(acme, acme.databaseUrl).connect());
      (await connectHealthy(pools[1])).release();
      await session.query('rollback');
      for (const client of await Promise.all(blocked)) client.release();
    });
  });

  it('a connection that is not verified within openMs is closed, and another tenant gets a connection', async () => {
    const { budget, pools } = harness.createBudget({ max: 1, openMs: 150 });

    await withConnection(harness.world.acme.adminUrl, async session => {
      // The connection logs in, but the query of the tenant's identity blocks.
      await session.query('begin; lock table tenant_identity in access exclusive mode');
      expect(await errorOf(pools[0].connect())).to.include({ code: 'ETIMEDOUT' });
      const other = await connectHealthy(pools[1]);
      other.release();
      await session.query('rollback');
    });

    const client = await connectHealthy(pools[0]);
    expect(budget.usage).to.deep.equal({ open: 1, inUse: 1, waiting: 0 });
    client.release();
  });

  it('a request that waits for a server which does not answer gets "unavailable", and not "overloaded"', async () => {
    const { pools } = harness.createBudget({ max: 2, openMs: 20_000, maxWaitMs: 200 });
    await withConnection(harness.world.acme.adminUrl, async session => {
      await session.query('begin; lock table tenant_identity in access exclusive mode');

      const error = await errorOf(pools[0].connect());

      expect(databaseProblem(error)?.code).to.equal('unavailable');
      await session.query('rollback');
    });
    (await connectHealthy(pools[0])).release();
  });

  it('a request that waits for a server which does not answer gets "unavailable" also while other requests hold connections', async () => {
    const { pools } = harness.createBudget({ max: 3, openMs: 20_000, maxWaitMs: 200 });
    const held = await connectHealthy(pools[0]);
    await withConnection(harness.world.acme.adminUrl, async session => {
      await session.query('begin; lock table tenant_identity in access exclusive mode');

      const error = await errorOf(pools[0].connect());

      expect(databaseProblem(error)?.code).to.equal('unavailable');
      await session.query('rollback');
    });
    held.release();
    (await connectHealthy(pools[0])).release();
  });

  it('a URL that cannot be connected to uses up no connection of the budget', async () => {
    const { budget, pools, addPool } = harness.createBudget({ max: 2 });
    const [acme] = harness.tenants;

    for (const [change, code] of [
      [(url: URL) => url.searchParams.set('sslrootcert', '/nowhere/root.crt'), 'TLS_FILE'],
      [(url: URL) => (url.password = 'wrong'), '28P01'],
      [(url: URL) => (url.pathname = '/no_such_database'), /3D000|28000|42501/],
      [(url: URL) => (url.port = '1'), 'ECONNREFUSED'],
    ] as const) {
      const url = new URL(acme.databaseUrl);
      change(url);
      const pool = addPool(acme, url.href);

      for (const error of await Promise.all([1, 2, 3].map(() => errorOf(pool.connect())))) {
        expect(error.code).to.match(new RegExp(code));
      }
    }

    await eventually(() => budget.usage.open === 0);
    await useConnection(pools[0], 'read');
  });

  it('a connection that is released twice, or while its queries run, counts once and stays usable', async () => {
    const { budget, pools } = harness.createBudget({ max: 2 });
    const client = await pools[0].connect();
    const slow = client.query('select pg_sleep(0.05)');
    const failing = errorOf(client.query('select no_such_column'));

    client.release();
    client.release();
    const next = await pools[0].connect();
    expect((await next.query('select 2 as two')).rows).to.deep.equal([{ two: 2 }]);

    await Promise.all([slow, failing]);
    next.release();
    expect(budget.usage).to.deep.equal({ open: 1, inUse: 0, waiting: 0 });
  });

  describe('budgets of several servers', () => {
    const silent = use(startSilentServer);

    it('the connections of the control database are deducted from the budget of its own server only', async () => {
      for (const [controlUrl, expected] of [
        [harness.world.installation.controlUrl, 2],
        ['postgresql://elsewhere.invalid/control', 5],
      ] as const) {
        const databases = harness.openDatabases(5, { controlUrl, controlConnections: 3 });
        let maxOpen = 0;

        await inParallel(Array.from({ length: 40 }), 20, async (_, i) => {
          await databases
            .open(harness.tenants[i % 5] as TenantRecord)
            .entityManager()
            .execute('select pg_sleep(0.01)');
          maxOpen = Math.max(maxOpen, databases.budgets.usage.open);
        });

        expect(maxOpen).to.equal(expected);
      }
    });

    it('two addresses of one server share one budget, less the connections of the control database', async () => {
      const { controlUrl } = harness.world.installation;
      const controlIdentity = await withConnection(controlUrl, readServerIdentity);
      const databases = harness.openDatabases(5, {
        controlUrl,
        controlIdentity,
        controlConnections: 3,
      });

      const [acme, globex] = harness.tenants;
      const atLocalhost = {
        ...globex,
        databaseUrl: globex.databaseUrl.replace('127.0.0.1', 'localhost'),
      };

      expect([acme, globex].map(({ serverIdentity }) => serverIdentity)).to.deep.equal([
        undefined,
        undefined,
      ]);

      for (const tenant of [acme, { ...atLocalhost, serverIdentity: controlIdentity }]) {
        await databases.open(tenant).entityManager().execute('select 1');
      }

      expect([...databases.budgets.all.values()].map(({ max }) => max)).to.deep.equal([2]);
    });

    it('a server that refuses connections or is silent delays no request to another server', async () => {
      const databases = harness.openDatabases(2, { acquireTimeoutMs });
      const [acme, globex] = harness.tenants;
      const atPort = (port: number): TenantRecord => {
        const url = new URL(acme.databaseUrl);
        url.port = String(port);
        return { ...acme, databaseUrl: url.href };
      };
      const query = (tenant: TenantRecord) =>
        databases.open(tenant).entityManager().execute('select 1 as one');
      const failing = Array.from({ length: 10 }, (_, i) =>
        errorOf(query(atPort(i % 2 === 0 ? 1 : silent.port))),
      );
      const silentOnes = failing.filter((_, i) => i % 2 === 1);
      let ended = 0;
      for (const each of silentOnes) void each.then(() => ended++);

      for (let i = 0; i < 20; i++) {
        expect(await query(i % 2 === 0 ? acme : globex)).to.deep.equal([{ one: 1 }]);
      }

      expect(ended, 'queries of the silent server that have ended').to.equal(0);
      await silent.close();
      for (const error of await Promise.all(failing)) {
        expect(error.message).to.match(
          /ECONNREFUSED|ECONNRESET|Connection terminated unexpectedly/,
        );
      }
      await eventually(
        () => databases.budgets.usage.inUse === 0 && databases.budgets.usage.open <= 2,
      );
      expect(databases.budgets.all.size).to.equal(3);
    });
  });
});
