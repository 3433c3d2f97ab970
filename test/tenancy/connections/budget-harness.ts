import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import fc from 'fast-check';
import type { TenantRecord } from '../../../src/control/records.ts';
import { tenantHead } from '../../../src/control/tenant-head.ts';
import { connectionConfig, withConnection } from '../../../src/lib/postgres/connection.ts';
import { tenantEntities } from '../../../src/sales/tenant-entities.ts';
import { ConnectionBudget } from '../../../src/tenancy/connections/connection-budget.ts';
import type { TenantClient } from '../../../src/tenancy/connections/tenant-client.ts';
import { TenantDatabases } from '../../../src/tenancy/connections/tenant-databases.ts';
import { TenantPool } from '../../../src/tenancy/connections/tenant-pool.ts';
import { createTenantOrm } from '../../../src/tenancy/tenant-orm.ts';
import { eventually } from '../../support/eventually.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { createWorld, type World } from '../../support/world.ts';
import { tenantRecord } from '../records.ts';

export const noConnections = { open: 0, inUse: 0, waiting: 0 };

interface BudgetSettings {
  max: number;
  maxPerTenant?: number;
  maxPerTenantShared?: number;
  maxWaitMs?: number;
  openMs?: number;
  mayOpen?: () => boolean;
}

interface TestBudget {
  budget: ConnectionBudget;
  /**
   * The application name of its connections, by which the server tells them from all others.
   */
  name: string;
  /** One pool for each tenant of the harness. */
  pools: [TenantPool, TenantPool, TenantPool, TenantPool, TenantPool];
  addPool: (tenant: TenantRecord, url: string) => TenantPool;
  /** Closes everything, and verifies that nothing is left. */
  close: () => Promise<void>;
}

export interface BudgetHarness {
  world: World;
  tenants: [TenantRecord, TenantRecord, TenantRecord, TenantRecord, TenantRecord];
  createBudget: (settings: BudgetSettings) => TestBudget;
  openDatabases: (
    connectionBudget: number,
    options?: Partial<ConstructorParameters<typeof TenantDatabases>[0]>,
  ) => TenantDatabases;
  /**
   * Closes the budgets and databases of a test, and verifies that nothing is left. For
   * `afterEach`.
   */
  cleanUp: () => Promise<void>;
}

/**
 * Creates a world of five tenants, with budgets and databases that do not belong to its server
 * process.
 */
export async function createBudgetHarness(): Promise<BudgetHarness> {
  const world = await createWorld();
  const head = await tenantHead();
  const more = await Promise.all(
    ['initech', 'umbrella', 'hooli'].map(slug => world.provision(slug)),
  );
  const tenants = await Promise.all(
    [world.acme, world.globex, ...more].map(tenant => tenantRecord(world, tenant)),
  );
  const closers = new Set<() => Promise<unknown>>();

  return {
    world,
    tenants: tenants as BudgetHarness['tenants'],
    createBudget: ({
      max,
      maxPerTenant = max,
      maxPerTenantShared = maxPerTenant,
      maxWaitMs = 10_000,
      openMs = 10_000,
      mayOpen = () => true,
    }) => {
      const budget = new ConnectionBudget({
        max,
        maxPerTenant,
        maxPerTenantShared,
        maxWaitMs,
        mayOpen,
      });

      const name = `budget-${randomBytes(5).toString('hex')}`;
      const pools: TenantPool[] = [];

      const addPool = (tenant: TenantRecord, url = tenant.databaseUrl): TenantPool => {
        const pool = new TenantPool(budget, {
          ...connectionConfig(url, 'api'),
          application_name: name,
          pipeline: true,
          expected: { guid: tenant.guid, head },
          silenceMs: 9_000,
          openMs,
        });
        pools.push(pool);
        return pool;
      };

      const tenantPools = tenants.map(tenant => addPool(tenant)) as TestBudget['pools'];

      const close = async (): Promise<void> => {
        closers.delete(close);
        await Promise.all(pools.map(pool => pool.end()));
        await budget.close();
        expect(budget.usage).to.deep.equal(noConnections);
        expect(await connectionsOnServer(name)).to.equal(0);
      };

      closers.add(close);
      return { budget, name, pools: tenantPools, addPool, close };
    },
    openDatabases: (connectionBudget, options = {}) => {
      const databases = new TenantDatabases({
        orm: createTenantOrm(tenantEntities),
        head,
        controlUrl: 'postgresql://elsewhere.invalid/control',
        controlConnections: 1,
        connectionBudget,
        tenantConnections: connectionBudget,
        acquireTimeoutMs: 10_000,
        ...options,
      });
      const close = async (): Promise<void> => {
        closers.delete(close);
        await databases.close();
        expect(databases.budgets.usage).to.deep.equal(noConnections);
      };
      closers.add(close);
      return databases;
    },
    cleanUp: async () => {
      await Promise.all([...closers].map(close => close()));
    },
  };
}

const uses = [
  'read',
  'transaction',
  'abandoned',
  'error',
  'killed',
  'killed in transaction',
  'ahead',
] as const;
type Use = (typeof uses)[number];

/**
 * One random step of a tenant: mostly reads, and everything that can happen to a connection.
 */
export const randomStep = fc.record({
  tenant: fc.nat(4),
  action: fc.oneof(
    { weight: 4, arbitrary: fc.constant<Use | 'kill any' | 'wrong database'>('read') },
    {
      weight: 4,
      arbitrary: fc.constantFrom<Use | 'kill any' | 'wrong database'>(
        ...uses,
        'kill any',
        'wrong database',
      ),
    },
  ),
});

/** Uses a connection once, correctly or not, and releases it in any case. */
export async function useConnection(pool: TenantPool, use: Use): Promise<void> {
  if (use === 'ahead') pool.openAhead();
  const client = await pool.connect();
  try {
    if (use === 'read') {
      await Promise.all([client.query('select 1'), client.query('select pg_sleep(0.002)')]);
    }
    if (use === 'error') {
      await Promise.all([client.query('select from no_such_table'), client.query('select 1')]);
    }
    if (use === 'killed') {
      await client.query('select pg_terminate_backend(pg_backend_pid())').catch(() => {});
    }

    if (!/transaction|abandoned/.test(use)) return;

    await client.query('begin');
    await client.query('select pg_sleep(0.002)');
    if (use === 'killed in transaction') {
      await client.query('select pg_terminate_backend(pg_backend_pid())');
    }
    if (use === 'transaction') await client.query('commit');
  } finally {
    client.release();
  }
}

/**
 * Returns a connection that works, although others may just have been killed. The caller
 * releases it.
 */
export function connectHealthy(pool: TenantPool): Promise<TenantClient> {
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

/** Kills a random connection of a budget, whether it is in use, idle or being opened. */
export async function killAny(name: string): Promise<void> {
  await queryServer(
    `select pg_terminate_backend(pid) from (
      select pid from pg_stat_activity where application_name = $1 order by random() limit 1) any_one`,
    [name],
  );
}

export function connectionsOnServer(name: string): Promise<number> {
  return queryServer('select from pg_stat_activity where application_name = $1', [name]).then(
    rows => rows.length,
  );
}

/**
 * Counts the connections that the server sees of a budget, as often as it can, and remembers
 * the maximum.
 */
export async function watchServer(
  name: string,
): Promise<{ max: () => number; end: () => Promise<void> }> {
  let [max, isWatching] = [0, true];
  const ended = withConnection(postgresUrl(), async session => {
    while (isWatching) {
      const { rowCount } = await session.query(
        'select from pg_stat_activity where application_name = $1',
        [name],
      );
      max = Math.max(max, rowCount ?? 0);
    }
  });
  return {
    max: () => max,
    end: () => {
      isWatching = false;
      return ended;
    },
  };
}

export function queryServer(text: string, values: unknown[] = []): Promise<object[]> {
  return withConnection(postgresUrl(), async session => (await session.query(text, values)).rows);
}

/**
 * Runs `work` for each item, `width` at a time.
 * @returns the errors
 */
export async function inParallel<Item>(
  items: Item[],
  width: number,
  work: (item: Item, i: number) => Promise<void>,
): Promise<unknown[]> {
  const errors: unknown[] = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: width }, async () => {
      while (next < items.length) {
        const i = next++;
        await work(items[i] as Item, i).catch(error => errors.push(error));
      }
    }),
  );
  return errors;
}
