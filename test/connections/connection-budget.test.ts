import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { queryObjects } from 'node:v8';
import { expect } from 'chai';
import fc from 'fast-check';
import { ConnectionBudget } from '../../src/connections/connection-budget.ts';
import { TenantClient } from '../../src/connections/tenant-client.ts';
import { TenantDatabases } from '../../src/connections/tenant-databases.ts';
import { TenantPool } from '../../src/connections/tenant-pool.ts';
import type { TenantRecord } from '../../src/control/records.ts';
import { tenantHead } from '../../src/operator/migrations/migrate-tenants.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { createTenantOrm } from '../../src/tenancy/tenant-orm.ts';
import { tenantEntities } from '../../src/tenant-entities.ts';
import { eventually } from '../support/eventually.ts';
import { postgresUrl } from '../support/test-server.ts';
import { createWorld, type World } from '../support/world.ts';
import { tenantRecord } from '../tenancy/records.ts';

const nothing = { open: 0, inUse: 0, waiting: 0 };

describe('The connection budget of a server', () => {
  let world: World;
  let head: string;
  let tenants: TenantRecord[];
  let ends: (() => Promise<unknown>)[] = [];

  before(async () => {
    world = await createWorld();
    head = await tenantHead();
    const more = await Promise.all(['initech', 'umbrella', 'hooli'].map(slug => world.provision(slug)));
    tenants = await Promise.all([world.acme, world.globex, ...more].map(tenant => tenantRecord(world, tenant)));
  });
  afterEach(async () => {
    await Promise.all(ends.map(end => end()));
    ends = [];
  });
  after(() => world.close());

  /** A budget with a pool for each tenant, whose connections the server can tell from all others. */
  function create({
    max,
    maxEach = max,
    maxShared = maxEach,
    waitMs = 10_000,
    openMs = 10_000,
  }: Partial<Settings> & { max: number }) {
    const budget = new ConnectionBudget({
      max,
      maxPerTenant: maxEach,
      maxPerTenantShared: maxShared,
      maxWaitMs: waitMs,
    });
    const name = `budget-${randomBytes(5).toString('hex')}`;
    const pool = (tenant: TenantRecord, url = tenant.databaseUrl) =>
      new TenantPool(budget, {
        connectionString: url,
        application_name: name,
        pipeline: true,
        expected: { guid: tenant.guid, schemaVersion: head },
        silenceMs: 9_000,
        openMs,
      });
    const pools = tenants.map(tenant => pool(tenant));
    const made = [...pools];
    ends.push(async () => {
      await Promise.all(made.map(each => each.end()));
      await budget.close();
      expect(budget.usage).to.deep.equal(nothing);
      expect(await onServer(name)).to.equal(0);
    });
    return {
      budget,
      name,
      pools: pools as [TenantPool, TenantPool, TenantPool, TenantPool, TenantPool],
      also: (tenant: TenantRecord, url: string) => {
        const more = pool(tenant, url);
        made.push(more);
        return more;
      },
    };
  }

  describe('is never passed', () => {
    it('whatever becomes of connections, transactions and servers, and no place is lost', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 60, maxLength: 120 }), async steps => {
          const max = 4;
          const { budget, name, pools, also } = create({ max, maxEach: 3 });
          const [first] = tenants as [TenantRecord];
          const wrong = also(first, (tenants[1] as TenantRecord).databaseUrl);
          const watch = await watchServer(name);
          const results = await parallel(steps, 14, async ({ tenant, act }) => {
            if (act === 'kill any') return killAny(name);
            await use(act === 'wrong database' ? wrong : (pools[tenant] as TenantPool), act);
          });
          for (const error of results) expect(String(error)).to.match(expectedFailures);
          expect(watch.most()).to.be.at.most(max);
          await eventually(() => budget.usage.inUse === 0 && budget.usage.waiting === 0);
          // All of it can be used again, by tenants that have what they ask for at the same time.
          const held = await Promise.all([0, 0, 1, 2].map(i => healthy(pools[i] as TenantPool)));
          expect(budget.usage).to.deep.equal({ open: max, inUse: max, waiting: 0 });
          expect(await onServer(name)).to.equal(max);
          for (const client of held) client.release();
          expect(budget.usage).to.deep.equal({ open: max, inUse: 0, waiting: 0 });
          expect(pools.map(({ inUse, opening, waiting }) => inUse + opening + waiting.length)).to.deep.equal(
            pools.map(() => 0),
          );
          await watch.end();
          const end = ends.pop();
          await end?.();
          const { waits, waitedMs, refused, opened, evicted } = budget.counts;
          expect(waits).to.be.at.least(refused);
          expect(opened).to.be.at.least(evicted);
          expect(waitedMs).to.be.at.least(0);
        }),
        { numRuns: 3, endOnFailure: true },
      );
    });

    it('though it is closed in the middle of everything', async () => {
      const { budget, name, pools } = create({ max: 3 });
      const load = parallel(Array.from({ length: 60 }), 20, async (_, i) => {
        await use(pools[i % 5] as TenantPool, i % 3 === 0 ? 'transaction' : 'read');
      });
      await eventually(() => budget.usage.inUse > 0 && budget.usage.waiting > 0);
      await Promise.all(pools.map(pool => pool.end()));
      await budget.close();
      expect(budget.usage).to.deep.equal(nothing);
      for (const error of await load) expect(error).to.include({ code: 'POOL_CLOSED' });
      expect(await onServer(name)).to.equal(0);
    });

    it('by one tenant beyond its own limit, however much room there is', async () => {
      const { name, pools } = create({ max: 6, maxEach: 2 });
      const watch = await watchServer(name);
      await parallel(Array.from({ length: 30 }), 30, (_, i) => use(pools[0], i % 5 === 0 ? 'killed' : 'transaction'));
      expect(watch.most()).to.equal(2);
      await watch.end();
    });
  });

  describe('while several tenants use the server', () => {
    it('lets none of them have more than a part of its own limit, and all of it when it is alone again', async () => {
      const { pools } = create({ max: 8, maxEach: 6, maxShared: 2 });
      const [busy, quiet] = pools;
      const most = async (): Promise<number> => {
        let seen = 0;
        await parallel(Array.from({ length: 24 }), 24, async () => {
          const client = await busy.connect();
          seen = Math.max(seen, busy.inUse);
          await client.query('select pg_sleep(0.01)');
          client.release();
        });
        return seen;
      };
      expect(await most()).to.equal(6);
      await use(quiet, 'read');
      expect(await most()).to.equal(2);
      await eventually(async () => (await most()) === 6);
    });

    it('lets who waits for more have it when the others have gone, though nothing else happens', async () => {
      const { pools } = create({ max: 8, maxEach: 6, maxShared: 2, waitMs: 3_000 });
      const [busy, quiet] = pools;
      const held = [await busy.connect()];
      await use(quiet, 'read');
      held.push(await busy.connect());
      const waiting = [busy.connect(), busy.connect()];
      expect(busy.waiting).to.have.length(2);
      held.push(...(await Promise.all(waiting)));
      for (const client of held) client.release();
    });
  });

  describe('gives up', () => {
    it('an idle connection of one tenant for another', async () => {
      const { budget, name, pools } = create({ max: 2 });
      for (let round = 0; round < 3; round++) for (const pool of pools) await use(pool, 'read');
      expect(await onServer(name)).to.equal(2);
      expect(budget.counts.evicted).to.equal(budget.counts.opened - 2);
    });

    it('what is cold: a tenant that is often asked for keeps its connection while others pass by', async () => {
      const { pools } = create({ max: 3 });
      const [hot, ...cold] = pools;
      const pids = new Set<unknown>();
      for (let i = 0; i < 10; i++) {
        for (let n = 0; n < 4; n++) pids.add(await backendOf(hot));
        // As many others as there are connections, so that it is the one used the longest ago each time.
        for (let n = 0; n < 3; n++) await use(cold[(i + n) % cold.length] as TenantPool, 'read');
      }
      expect(pids.size).to.equal(1);
    });

    it('the memory of a connection with it', async () => {
      const { pools } = create({ max: 2 });
      const before = queryObjects(TenantClient, { format: 'count' });
      for (let i = 0; i < 40; i++) (await pools[i % 5]!.connect()).release();
      await eventually(() => queryObjects(TenantClient, { format: 'count' }) <= before + 2, 2_000);
    });

    it('nothing that is in use', async () => {
      const { pools } = create({ max: 2 });
      const held = await pools[0].connect();
      await held.query('begin');
      for (const pool of pools.slice(1)) await use(pool, 'read');
      expect((await held.query('select 1 as one')).rows).to.deep.equal([{ one: 1 }]);
      await held.query('commit');
      held.release();
    });
  });

  describe('lets requests wait', () => {
    it('for so long and no longer, and is whole again after it', async () => {
      const { budget, pools } = create({ max: 1, waitMs: 60 });
      const held = await pools[0].connect();
      const failures = await Promise.all(pools.map(pool => failure(pool.connect())));
      for (const error of failures) expect(error).to.include({ code: 'POOL_TIMEOUT' });
      expect(budget.usage).to.deep.equal({ open: 1, inUse: 1, waiting: 0 });
      expect(budget.counts).to.include({ waits: 6, refused: 5 }); // the first one waited for its connection to open
      held.release();
      const next = await healthy(pools[1]);
      next.release();
    });

    it('in the order in which they came, one tenant after the other', async () => {
      const { pools } = create({ max: 1 });
      const held = await pools[0].connect();
      const served: number[] = [];
      const line = [3, 1, 2].map(async i => {
        const client = await (pools[i] as TenantPool).connect();
        served.push(i);
        client.release();
      });
      held.release();
      await Promise.all(line);
      expect(served).to.deep.equal([3, 1, 2]);
    });

    it('and gives none more than its share while others do', async () => {
      const { pools } = create({ max: 4 });
      const [flooding, ...others] = pools;
      const held = await Promise.all([0, 1, 2, 3].map(() => flooding.connect()));
      const served: string[] = [];
      const take = async (pool: TenantPool, name: string) => {
        const client = await pool.connect();
        served.push(name);
        return client;
      };
      const flood = Array.from({ length: 20 }, () => take(flooding, 'flooding'));
      const quiet = [others[0], others[1], others[2]].map(pool => take(pool as TenantPool, 'quiet'));
      for (const client of held.slice(0, 3)) client.release();
      const taken = await Promise.all(quiet);
      // Each of four has one, and those who flood wait, until there is room that nobody else asks for.
      expect(served).to.deep.equal(['quiet', 'quiet', 'quiet']);
      for (const client of [...taken, ...held.slice(3)]) client.release();
      for (const client of flood) (await client).release();
      expect(served).to.have.length(23);
    });

    it('in a line that one tenant cannot fill for the others', async () => {
      const { budget, pools } = create({ max: 1 });
      const held = await pools[0].connect();
      const flood = Array.from({ length: 2_000 }, () => pools[0].connect().then(release, (error: Error) => error));
      const quiet = pools[1].connect();
      expect(budget.usage.waiting).to.equal(2_000);
      const refused = await failure(pools[0].connect());
      expect(refused).to.include({ code: 'POOL_TIMEOUT' });
      held.release();
      (await quiet).release();
      const sentAway = (await Promise.all(flood)).filter(error => error !== undefined);
      expect(sentAway).to.have.length(1);
      expect(budget.usage).to.include({ inUse: 0, waiting: 0 });
    });

    it('and starves nobody, though the tenants that have the connections never pause', async () => {
      const { pools } = create({ max: 2 });
      let running = true;
      const turns = [0, 0];
      const load = [0, 1].flatMap(i =>
        Array.from({ length: 8 }, async () => {
          while (running) {
            await use(pools[i] as TenantPool, 'read');
            turns[i]!++;
          }
        }),
      );
      await eventually(() => turns.every(n => n > 20), 10_000);
      for (let round = 0; round < 3; round++)
        await Promise.all([2, 3, 4].map(i => use(pools[i] as TenantPool, 'read')));
      const before = [...turns];
      await eventually(() => turns.every((n, i) => n > (before[i] ?? 0) + 20), 10_000);
      running = false;
      await Promise.all(load);
    });

    it('over HTTP: 503 "overloaded" with Retry-After, then answers again', async () => {
      const { url, service } = await world.startAnotherServer({
        CONTROL_CONNECTIONS: '2',
        CONNECTION_BUDGET: '4', // one for tenants
        ACQUIRE_TIMEOUT_MS: '700',
      });
      const readThrough = { 'Cache-Control': 'no-cache' };
      const client = (await world.login(world.acme)).at(url);
      await eventually(async () => (await client.get('/api/v1/EntityStatus', readThrough)).status === 200);
      await withConnection(world.acme.adminUrl, async session => {
        await session.query('begin; lock table entity_statuses in access exclusive mode');
        const stuck = client.get('/api/v1/EntityStatus', readThrough);
        await eventually(() => service.databases.usage.inUse === 1);
        const other = (await world.login(world.globex)).at(url);
        const { status, body, headers } = await other.get('/api/v1/EntityStatus', readThrough);
        expect([status, body.code]).to.deep.equal([503, 'overloaded']);
        expect(Number(headers.get('retry-after'))).to.be.at.least(1);
        await session.query('rollback');
        expect((await stuck).status).to.equal(200);
        await eventually(async () => (await other.get('/api/v1/EntityStatus', readThrough)).status === 200);
      });
    });
  });

  describe('keeps no place', () => {
    it('for a connection that was cut: a reader gets another one, and no reader gets one that is dying', async () => {
      const databases = open(3);
      const driver = databases.open(tenants[0] as TenantRecord);
      const types = { getTypeParser: () => String } as never;
      const kill =
        'select pg_terminate_backend(pid) from pg_stat_activity where query like $1 and pid <> pg_backend_pid()';
      for (let i = 0; i < 3; i++) {
        const select = { name: `slow_${i}`, text: `select pg_sleep(0.15) as "cut ${i}"`, values: [], types };
        const reading = driver.readCacheable(select, 'Currency');
        await eventually(() => query(kill, [`%"cut ${i}"%`]).then(rows => rows.length > 0));
        expect((await reading).rows).to.have.length(1);
      }
      expect(databases.usage).to.include({ inUse: 0, waiting: 0 });
    });

    it('though many openings do not end: whoever comes besides gets a connection before they are given up', async () => {
      const { pools, also } = create({ max: 20, openMs: 20_000, waitMs: 20_000 });
      await withConnection(world.acme.adminUrl, async session => {
        await session.query('begin; lock table tenant_identity in access exclusive mode');
        const [acme] = tenants as [TenantRecord];
        const stuck = Array.from({ length: 12 }, () => also(acme, acme.databaseUrl).connect());
        (await healthy(pools[1])).release();
        await session.query('rollback');
        for (const client of await Promise.all(stuck)) client.release();
      });
    });

    it('for a connection whose server says nothing while it is opened', async () => {
      const { budget, pools } = create({ max: 1, openMs: 150 });
      await withConnection(world.acme.adminUrl, async session => {
        // It logs in, and then cannot prove where it is.
        await session.query('begin; lock table tenant_identity in access exclusive mode');
        expect(await failure(pools[0].connect())).to.include({ code: 'ETIMEDOUT' });
        const other = await healthy(pools[1]);
        other.release();
        await session.query('rollback');
      });
      const client = await healthy(pools[0]);
      expect(budget.usage).to.deep.equal({ open: 1, inUse: 1, waiting: 0 });
      client.release();
    });

    it('for an address that leads nowhere', async () => {
      const { budget, pools, also } = create({ max: 2 });
      const [first] = tenants as [TenantRecord];
      for (const [change, code] of [
        [(url: URL) => url.searchParams.set('sslrootcert', '/nowhere/root.crt'), 'ENOENT'],
        [(url: URL) => (url.password = 'wrong'), '28P01'],
        [(url: URL) => (url.pathname = '/no_such_database'), /3D000|28000|42501/],
        [(url: URL) => (url.port = '1'), 'ECONNREFUSED'],
      ] as const) {
        const url = new URL(first.databaseUrl);
        change(url);
        const pool = also(first, url.href);
        for (const error of await Promise.all([1, 2, 3].map(() => failure(pool.connect()))))
          expect((error as { code?: string }).code).to.match(new RegExp(code));
      }
      await eventually(() => budget.usage.open === 0);
      await use(pools[0], 'read');
    });

    it('for a use that gives it back twice, or while its queries still run', async () => {
      const { budget, pools } = create({ max: 2 });
      const client = await pools[0].connect();
      const slow = client.query('select pg_sleep(0.05)');
      const wrong = failure(client.query('select no_such_column'));
      client.release();
      client.release();
      const again = await pools[0].connect();
      expect((await again.query('select 2 as two')).rows).to.deep.equal([{ two: 2 }]);
      await Promise.all([slow, wrong]);
      again.release();
      expect(budget.usage).to.deep.equal({ open: 1, inUse: 0, waiting: 0 });
    });
  });

  describe('of each server by itself', () => {
    let silent: Server;
    const sockets = new Set<Socket>();

    before(async () => {
      silent = createServer(socket => sockets.add(socket.on('error', () => {})));
      silent.listen(0, '127.0.0.1');
      await once(silent, 'listening');
    });
    after(() => {
      for (const socket of sockets) socket.destroy();
      silent.close();
    });

    it('is less what the control database takes, on its own server only', async () => {
      for (const [controlUrl, most] of [
        [world.installation.controlUrl, 2],
        ['postgresql://elsewhere.invalid/control', 5],
      ] as const) {
        const databases = open(5, { controlUrl, controlConnections: 3 });
        let seen = 0;
        await parallel(Array.from({ length: 40 }), 20, async (_, i) => {
          await databases
            .open(tenants[i % 5] as TenantRecord)
            .entityManager()
            .execute('select pg_sleep(0.01)');
          seen = Math.max(seen, databases.usage.open);
        });
        expect(seen).to.equal(most);
      }
    });

    it('is not touched by another one that refuses, or is silent', async () => {
      const databases = open(2, { acquireTimeoutMs: 1_500 });
      const [first, second] = tenants as [TenantRecord, TenantRecord];
      const at = (port: number): TenantRecord => {
        const url = new URL(first.databaseUrl);
        url.port = String(port);
        return { ...first, databaseUrl: url.href };
      };
      const ask = (tenant: TenantRecord) => databases.open(tenant).entityManager().execute('select 1 as one');
      const lost = Array.from({ length: 30 }, (_, i) =>
        failure(ask(at(i % 2 === 0 ? 1 : (silent.address() as { port: number }).port))),
      );
      const startedAt = performance.now();
      for (let i = 0; i < 20; i++) expect(await ask(i % 2 === 0 ? first : second)).to.deep.equal([{ one: 1 }]);
      expect(performance.now() - startedAt).to.be.lessThan(1_400);
      for (const error of await Promise.all(lost))
        expect(error.message).to.match(/ECONNREFUSED|did not answer in time|became free in time/);
      await eventually(() => databases.usage.inUse === 0 && databases.usage.open <= 2);
      expect(databases.budgets.size).to.equal(3);
    });
  });

  function open(connectionBudget: number, more: Partial<ConstructorParameters<typeof TenantDatabases>[0]> = {}) {
    const databases = new TenantDatabases({
      orm: createTenantOrm(tenantEntities),
      head,
      controlUrl: 'postgresql://elsewhere.invalid/control',
      controlConnections: 1,
      connectionBudget,
      tenantConnections: connectionBudget,
      acquireTimeoutMs: 10_000,
      ...more,
    });
    ends.push(async () => {
      await databases.close();
      expect(databases.usage).to.deep.equal(nothing);
    });
    return databases;
  }

  /** Ends any one connection of the budget, whether it is in use, idle or being opened. */
  async function killAny(name: string): Promise<void> {
    await query(
      `select pg_terminate_backend(pid) from (
        select pid from pg_stat_activity where application_name = $1 order by random() limit 1) any_one`,
      [name],
    );
  }

  function onServer(name: string): Promise<number> {
    return query('select from pg_stat_activity where application_name = $1', [name]).then(rows => rows.length);
  }

  /** Counts what the server sees of a budget, as often as it can. */
  async function watchServer(name: string) {
    let [most, watching] = [0, true];
    const ended = withConnection(postgresUrl(), async session => {
      while (watching) {
        const { rowCount } = await session.query('select from pg_stat_activity where application_name = $1', [name]);
        most = Math.max(most, rowCount ?? 0);
      }
    });
    return {
      most: () => most,
      end: () => {
        watching = false;
        return ended;
      },
    };
  }

  async function backendOf(pool: TenantPool): Promise<unknown> {
    const client = await pool.connect();
    try {
      return (await client.query('select pg_backend_pid() as pid')).rows[0].pid;
    } finally {
      client.release();
    }
  }
});

interface Settings {
  max: number;
  maxEach: number;
  maxShared: number;
  waitMs: number;
  openMs: number;
}

const acts = ['read', 'transaction', 'abandoned', 'error', 'killed', 'killed in transaction'] as const;
type Act = (typeof acts)[number] | 'kill any' | 'wrong database';
const step = fc.record({
  tenant: fc.nat(4),
  act: fc.oneof(
    { weight: 4, arbitrary: fc.constant<Act>('read') },
    { weight: 4, arbitrary: fc.constantFrom<Act>(...acts, 'kill any', 'wrong database') },
  ),
});
const expectedFailures =
  /belongs to another tenant|no_such_table|terminating connection|Connection terminated|not queryable|ECONNRESET|EPIPE/;

/** Uses a connection once, well or badly; it is given back in any case. */
async function use(pool: TenantPool, act: Act): Promise<void> {
  const client = await pool.connect();
  try {
    if (act === 'read') await Promise.all([client.query('select 1'), client.query('select pg_sleep(0.002)')]);
    if (act === 'error') await Promise.all([client.query('select from no_such_table'), client.query('select 1')]);
    if (act === 'killed') await client.query('select pg_terminate_backend(pg_backend_pid())').catch(() => {});
    if (!/transaction|abandoned/.test(act)) return;
    await client.query('begin');
    await client.query('select pg_sleep(0.002)');
    if (act === 'killed in transaction') await client.query('select pg_terminate_backend(pg_backend_pid())');
    if (act === 'transaction') await client.query('commit');
  } finally {
    client.release();
  }
}

/** A connection that works, though others may just have been killed. */
function healthy(pool: TenantPool): Promise<TenantClient> {
  return eventually(async () => {
    const client = await pool.connect();
    try {
      await client.query('select 1');
      return client;
    } catch (error) {
      client.release();
      throw error;
    }
  });
}

function release(client: TenantClient): void {
  client.release();
}

function query(text: string, values: unknown[] = []): Promise<object[]> {
  return withConnection(postgresUrl(), async session => (await session.query(text, values)).rows);
}

async function failure(promise: Promise<unknown>): Promise<Error> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof Error)) throw new Error('it did not fail');
  return error;
}

/** Does all of it, `width` at a time. @returns what failed */
async function parallel<Item>(
  items: Item[],
  width: number,
  work: (item: Item, i: number) => Promise<void>,
): Promise<unknown[]> {
  const failures: unknown[] = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: width }, async () => {
      while (next < items.length) {
        const i = next++;
        await work(items[i] as Item, i).catch(error => failures.push(error));
      }
    }),
  );
  return failures;
}
