import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect } from 'chai';
import fc from 'fast-check';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { TenantClient } from '../../../src/tenancy/connections/tenant-client.ts';
import type { TenantPool } from '../../../src/tenancy/connections/tenant-pool.ts';
import { errorOf } from '../../support/errors.ts';
import { eventually } from '../../support/eventually.ts';
import { createWorld } from '../../support/world.ts';
import {
  type BudgetHarness,
  connectHealthy,
  connectionsOnServer,
  createBudgetHarness,
  inParallel,
  killAny,
  noConnections,
  randomStep,
  useConnection,
  watchServer,
} from './budget-harness.ts';

const expectedErrors =
  /belongs to another tenant|no_such_table|terminating connection|Connection terminated|not queryable|ECONNRESET|EPIPE/;

describe('connection budget', () => {
  let harness: BudgetHarness;

  before(async () => {
    harness = await createBudgetHarness();
  });
  afterEach(() => harness.cleanUp());
  after(() => harness.world.close());

  describe('limits', () => {
    it('a budget never exceeds its maximum and loses no connection, whatever fails', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(randomStep, { minLength: 60, maxLength: 120 }), async steps => {
          const max = 4;
          const { budget, name, pools, addPool, close } = harness.createBudget({
            max,
            maxPerTenant: 3,
          });
          const [acme, globex] = harness.tenants;
          const wrongPool = addPool(acme, globex.databaseUrl);

          const watch = await watchServer(name);
          const errors = await inParallel(steps, 14, async ({ tenant, action }) => {
            if (action === 'kill any') await killAny(name);
            else if (action === 'wrong database') await useConnection(wrongPool, 'read');
            else await useConnection(pools[tenant] as TenantPool, action);
          });

          for (const error of errors) expect(String(error)).to.match(expectedErrors);
          expect(watch.max()).to.be.at.most(max);
          await eventually(() => budget.usage.inUse === 0 && budget.usage.waiting === 0);

          // The whole budget is usable again, by several tenants at the same time.
          const clients = await Promise.all(
            [0, 0, 1, 2].map(i => connectHealthy(pools[i] as TenantPool)),
          );
          expect(budget.usage).to.deep.equal({ open: max, inUse: max, waiting: 0 });
          expect(await connectionsOnServer(name)).to.equal(max);
          for (const client of clients) client.release();
          expect(budget.usage).to.deep.equal({ open: max, inUse: 0, waiting: 0 });

          expect(
            pools.map(({ inUse, opening, waiting }) => inUse + opening + waiting.length),
          ).to.deep.equal(pools.map(() => 0));
          await watch.end();
          await close();

          const { waits, waitedMs, refused, opened, evicted } = budget.counts;
          expect(waits).to.be.at.least(refused);
          expect(opened).to.be.at.least(evicted);
          expect(waitedMs).to.be.at.least(0);
        }),
        { numRuns: 1, endOnFailure: true },
      );
    });

    it('a budget that is closed under load closes every connection and rejects every waiter', async () => {
      const { budget, name, pools } = harness.createBudget({ max: 3 });
      const load = inParallel(Array.from({ length: 60 }), 20, async (_, i) => {
        await useConnection(pools[i % 5] as TenantPool, i % 3 === 0 ? 'transaction' : 'read');
      });

      await eventually(() => budget.usage.inUse > 0 && budget.usage.waiting > 0);
      await Promise.all(pools.map(pool => pool.end()));
      await budget.close();

      expect(budget.usage).to.deep.equal(noConnections);
      for (const error of await load) expect(error).to.include({ code: 'POOL_CLOSED' });
      expect(await connectionsOnServer(name)).to.equal(0);
    });

    it('one tenant never exceeds its own maximum, however much room the budget has', async () => {
      const { name, pools } = harness.createBudget({ max: 6, maxPerTenant: 2 });
      const watch = await watchServer(name);
      await inParallel(Array.from({ length: 30 }), 30, (_, i) =>
        useConnection(pools[0], i % 5 === 0 ? 'killed' : 'transaction'),
      );
      expect(watch.max()).to.equal(2);
      await watch.end();
    });
  });

  describe('connections opened ahead', () => {
    it('a request gets the connection that is being opened ahead, and opens no other', async () => {
      const { budget, pools } = harness.createBudget({ max: 4 });

      pools[0].openAhead();
      expect(budget.usage).to.deep.equal({ open: 1, inUse: 0, waiting: 0 });
      const client = await pools[0].connect();
      client.release();
      pools[0].openAhead();

      expect(budget.usage).to.deep.equal({ open: 1, inUse: 0, waiting: 0 });
      expect(budget.counts).to.include({ opened: 1, evicted: 0, refused: 0 });
    });

    it('a request gets the error of the connection that is being opened ahead, and opens no other', async () => {
      const [acme, globex] = harness.tenants;
      const { budget, addPool } = harness.createBudget({ max: 4 });
      const wrongPool = addPool(acme, globex.databaseUrl);

      wrongPool.openAhead();
      expect(await errorOf(wrongPool.connect())).to.include({ code: 'TENANT_IDENTITY' });
      expect(budget.counts).to.include({ opened: 1 });
    });

    it('an error before the first request is left to the connection that the request opens', async () => {
      const [acme, globex] = harness.tenants;
      const { budget, addPool } = harness.createBudget({ max: 4 });
      const wrongPool = addPool(acme, globex.databaseUrl);

      wrongPool.openAhead();
      await eventually(() => budget.usage.open === 0);
      expect(await errorOf(wrongPool.connect())).to.include({ code: 'TENANT_IDENTITY' });
      expect(budget.counts).to.include({ opened: 2 });
    });

    it('no connection is opened ahead in a full budget, and a request then waits no longer than the maximum wait', async () => {
      const { budget, pools } = harness.createBudget({ max: 1, maxWaitMs: 400 });
      const client = await pools[0].connect();

      pools[1].openAhead();
      expect(budget.usage).to.deep.equal({ open: 1, inUse: 1, waiting: 0 });
      expect(await errorOf(pools[1].connect())).to.include({ code: 'POOL_TIMEOUT' });
      client.release();
      pools[1].openAhead();

      expect(budget.usage).to.deep.equal({ open: 1, inUse: 0, waiting: 0 });
      expect(budget.counts).to.include({ opened: 1, evicted: 0 });
    });

    it('no connection is opened ahead while none may be, or after the pool has ended', async () => {
      let mayOpen = false;
      const { budget, pools } = harness.createBudget({ max: 4, mayOpen: () => mayOpen });

      pools[0].openAhead();
      expect(budget.usage).to.deep.equal(noConnections);
      mayOpen = true;
      await pools[0].end();
      pools[0].openAhead();

      expect(budget.usage).to.deep.equal(noConnections);
    });

    it('a connection that is being opened ahead is closed when its pool ends', async () => {
      const { budget, pools } = harness.createBudget({ max: 4 });

      pools[0].openAhead();
      await pools[0].end();

      await eventually(() => budget.usage.open === 0);
    });
  });

  describe('changes of the maximum', () => {
    it('a lowered maximum closes idle connections at once, and those in use when they are released', async () => {
      const { budget, name, pools } = harness.createBudget({ max: 4 });
      const clients = await Promise.all(
        [0, 0, 1, 2].map(i => connectHealthy(pools[i] as TenantPool)),
      );
      clients[0]?.release();

      budget.setMax(2);
      await eventually(() => budget.usage.open === 3);
      expect(await connectionsOnServer(name)).to.equal(3);

      const waiting = pools[3].connect();
      clients[1]?.release();
      await eventually(() => budget.usage.open === 2);
      expect(budget.usage).to.deep.equal({ open: 2, inUse: 2, waiting: 1 });

      clients[2]?.release();
      const client = await waiting;
      expect(budget.usage).to.deep.equal({ open: 2, inUse: 2, waiting: 0 });
      for (const each of [client, clients[3]]) each?.release();
      expect(await connectionsOnServer(name)).to.equal(2);
    });

    it('a raised maximum serves the waiters at once', async () => {
      const { budget, pools } = harness.createBudget({ max: 4 });
      budget.setMax(0);
      const waiting = [0, 0, 1].map(i => (pools[i] as TenantPool).connect());
      expect(budget.usage).to.deep.equal({ open: 0, inUse: 0, waiting: 3 });
      budget.setMax(3);
      for (const client of await Promise.all(waiting)) client.release();
      expect(budget.usage).to.deep.equal({ open: 3, inUse: 0, waiting: 0 });
    });

    it('no connection is opened while none may be, and one that opens after the maximum fell is closed', async () => {
      let mayOpen = false;
      const { budget, pools, name } = harness.createBudget({ max: 2, mayOpen: () => mayOpen });
      const waiting = pools[0].connect();
      expect(budget.usage).to.deep.equal({ open: 0, inUse: 0, waiting: 1 });

      mayOpen = true;
      budget.setMax(2);
      expect(budget.usage.open).to.equal(1);

      mayOpen = false;
      budget.setMax(0);
      await eventually(() => budget.usage.open === 0);
      expect(await connectionsOnServer(name)).to.equal(0);
      expect(budget.usage.waiting).to.equal(1);

      mayOpen = true;
      budget.setMax(2);
      (await waiting).release();
    });
  });

  describe('contention', () => {
    it('a tenant has a lower maximum while other tenants are active, and its full one when alone again', async () => {
      const { pools } = harness.createBudget({ max: 8, maxPerTenant: 6, maxPerTenantShared: 2 });
      const [busy, quiet] = pools;

      const maxInUse = async (): Promise<number> => {
        let max = 0;
        await inParallel(Array.from({ length: 24 }), 24, async () => {
          const client = await busy.connect();
          max = Math.max(max, busy.inUse);
          await client.query('select pg_sleep(0.01)');
          client.release();
        });
        return max;
      };

      // a slow start opens few connections within 10 ms
      await eventually(async () => (await maxInUse()) === 6);
      await useConnection(quiet, 'read');
      expect(await maxInUse()).to.equal(2);
      await eventually(async () => (await maxInUse()) === 6);
    });

    it('a waiter gets a connection when the contention ends, although no other event occurs', async () => {
      const { pools } = harness.createBudget({
        max: 8,
        maxPerTenant: 6,
        maxPerTenantShared: 2,
        maxWaitMs: 3_000,
      });
      const [busy, quiet] = pools;

      const clients = [await busy.connect()];
      await useConnection(quiet, 'read');
      clients.push(await busy.connect());
      const waiting = [busy.connect(), busy.connect()];
      expect(busy.waiting).to.have.length(2);

      clients.push(...(await Promise.all(waiting)));
      for (const client of clients) client.release();
    });
  });

  describe('eviction', () => {
    it('an idle connection of one tenant is evicted for another tenant', async () => {
      const { budget, name, pools } = harness.createBudget({ max: 2 });
      for (let round = 0; round < 3; round++) {
        for (const pool of pools) await useConnection(pool, 'read');
      }
      expect(await connectionsOnServer(name)).to.equal(2);
      expect(budget.counts.evicted).to.equal(budget.counts.opened - 2);
    });

    it('a frequently used tenant keeps its connection while other tenants come and go', async () => {
      const { pools } = harness.createBudget({ max: 3 });
      const [frequent, ...rare] = pools;
      const pids = new Set<unknown>();

      for (let i = 0; i < 10; i++) {
        for (let n = 0; n < 4; n++) pids.add(await backendOf(frequent));
        // There are as many other tenants as connections: each time the connection of the
        // frequent tenant is the least recently used.
        for (let n = 0; n < 3; n++) {
          await useConnection(rare[(i + n) % rare.length] as TenantPool, 'read');
        }
      }

      expect(pids.size).to.equal(1);
    });

    it('a tenant that has just made a change keeps its connection rather than one that uses its own more', async () => {
      const read = { name: 'one', text: 'select 1', values: [] };
      const statement = { name: 'change', text: `select set_config('a.b', 'c', true)`, values: [] };
      const actor = JSON.stringify({ traceId: 'test' });

      for (const change of [statement, { ...statement, withActor: () => statement }]) {
        const databases = harness.openDatabases(2);
        const [frequent, changed, other] = harness.tenants.map(tenant => databases.open(tenant));
        for (let n = 0; n < 5; n++) await frequent!.reads.read(read);
        await changed!.change({ actor, change });
        await other!.reads.read(read);

        expect(frequent!.pool.idle.length).to.equal(0);
        expect(changed!.pool.idle.length).to.equal(1);
      }
    });

    it('the memory of an evicted connection is freed', async () => {
      const { pools } = harness.createBudget({ max: 2 });
      setFlagsFromString('--expose-gc');
      const collectGarbage = runInNewContext('gc');
      const clients: WeakRef<TenantClient>[] = [];

      for (let i = 0; i < 20; i++) {
        const client = await pools[i % 5]!.connect();
        client.release();
        clients.push(new WeakRef(client));
      }

      await eventually(() => {
        collectGarbage();
        return clients.filter(client => client.deref()).length <= 2;
      });
    });

    it('a connection in use is never evicted', async () => {
      const { pools } = harness.createBudget({ max: 2 });
      const client = await pools[0].connect();
      await client.query('begin');
      for (const pool of pools.slice(1)) await useConnection(pool, 'read');
      expect((await client.query('select 1 as one')).rows).to.deep.equal([{ one: 1 }]);
      await client.query('commit');
      client.release();
    });
  });

  describe('wait queue', () => {
    it('a request waits no longer than the maximum wait, and the budget is usable again afterwards', async () => {
      const { budget, pools } = harness.createBudget({ max: 1, maxWaitMs: 400 });
      const client = await pools[0].connect();

      const errors = await Promise.all(pools.map(pool => errorOf(pool.connect())));
      for (const error of errors) expect(error).to.include({ code: 'POOL_TIMEOUT' });
      expect(budget.usage).to.deep.equal({ open: 1, inUse: 1, waiting: 0 });
      // the first request waited for its connection to open
      expect(budget.counts).to.include({ waits: 6, refused: 5 });

      client.release();
      const next = await connectHealthy(pools[1]);
      next.release();
    });

    it('the waiters of tenants with equally many connections are served in the order of their arrival', async () => {
      const { pools } = harness.createBudget({ max: 1 });
      const client = await pools[0].connect();
      const served: number[] = [];

      const waiting = [3, 1, 2].map(async i => {
        const next = await (pools[i] as TenantPool).connect();
        served.push(i);
        next.release();
      });

      client.release();
      await Promise.all(waiting);

      expect(served).to.deep.equal([3, 1, 2]);
    });

    it('no tenant gets more than its share of the connections while other tenants wait', async () => {
      const { pools } = harness.createBudget({ max: 4 });
      const [flooding, ...others] = pools;
      const clients = await Promise.all([0, 1, 2, 3].map(() => flooding.connect()));

      const served: string[] = [];
      const connect = async (pool: TenantPool, name: string) => {
        const client = await pool.connect();
        served.push(name);
        return client;
      };

      const flood = Array.from({ length: 20 }, () => connect(flooding, 'flooding'));
      const quiet = [others[0], others[1], others[2]].map(pool =>
        connect(pool as TenantPool, 'quiet'),
      );

      for (const client of clients.slice(0, 3)) client.release();
      const quietClients = await Promise.all(quiet);
      // Each of the four tenants has one connection. The flooding one waits until no other
      // tenant needs the room.
      expect(served).to.deep.equal(['quiet', 'quiet', 'quiet']);

      for (const client of [...quietClients, ...clients.slice(3)]) client.release();
      for (const client of flood) (await client).release();
      expect(served).to.have.length(23);
    });

    it('one tenant cannot fill the wait queue for the other tenants', async () => {
      const { budget, pools } = harness.createBudget({ max: 1 });
      const client = await pools[0].connect();

      const flood = Array.from({ length: 2_000 }, () =>
        pools[0].connect().then(
          each => each.release(),
          (error: Error) => error,
        ),
      );
      const quiet = pools[1].connect();

      expect(budget.usage.waiting).to.equal(2_000);
      expect(await errorOf(pools[0].connect())).to.include({ code: 'POOL_TIMEOUT' });

      client.release();
      (await quiet).release();
      const refused = (await Promise.all(flood)).filter(error => error !== undefined);
      expect(refused).to.have.length(1);
      expect(budget.usage).to.include({ inUse: 0, waiting: 0 });
    });

    it('no tenant starves, although the tenants that have the connections never pause', async () => {
      const { pools } = harness.createBudget({ max: 2 });
      let isRunning = true;
      const uses = [0, 0];

      const load = [0, 1].flatMap(i =>
        Array.from({ length: 8 }, async () => {
          while (isRunning) {
            await useConnection(pools[i] as TenantPool, 'read');
            uses[i]!++;
          }
        }),
      );

      await eventually(() => uses.every(n => n > 20), 60_000);
      for (let round = 0; round < 3; round++) {
        await Promise.all([2, 3, 4].map(i => useConnection(pools[i] as TenantPool, 'read')));
      }
      const before = [...uses];
      await eventually(() => uses.every((n, i) => n > (before[i] ?? 0) + 20), 60_000);

      isRunning = false;
      await Promise.all(load);
    });

    it('a request that gets no connection in time gets 503 "overloaded" with Retry-After', async () => {
      const world = await createWorld({
        CONTROL_CONNECTIONS: '2',
        CONNECTION_BUDGET: '8', // one is left for tenants
        ACQUIRE_TIMEOUT_MS: '5000',
      });

      const { service } = world;
      const noCache = { 'Cache-Control': 'no-cache' };
      const path = '/api/v1/EntityStatus';
      const acme = await world.login(world.acme);
      await eventually(async () => (await acme.get(path, noCache)).status === 200);

      await withConnection(world.acme.adminUrl, async session => {
        await session.query('begin; lock table entity_statuses in access exclusive mode');
        const blocked = acme.get(path, noCache);
        await eventually(() => service.databases.budgets.usage.inUse === 1);

        const globex = await world.login(world.globex);
        const { status, body, headers } = await globex.get(path, noCache);
        expect(status).to.equal(503);
        expect(body.code).to.equal('overloaded');
        expect(Number(headers.get('retry-after'))).to.be.at.least(1);

        await session.query('rollback');
        expect((await blocked).status).to.equal(200);
        await eventually(async () => (await globex.get(path, noCache)).status === 200);
      });
      await world.close();
    });
  });
});

async function backendOf(pool: TenantPool): Promise<unknown> {
  const client = await pool.connect();
  try {
    return (await client.query('select pg_backend_pid() as pid')).rows[0].pid;
  } finally {
    client.release();
  }
}
