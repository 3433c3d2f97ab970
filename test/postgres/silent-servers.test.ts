import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { ConnectionBudget } from '../../src/connections/connection-budget.ts';
import { TenantPool } from '../../src/connections/tenant-pool.ts';
import { tenantHead } from '../../src/operator/schema/tenant-head.ts';
import { connectionConfig } from '../../src/postgres/connection.ts';
import { dropDeadConnections } from '../../src/postgres/dead-connections.ts';
import { type SilentProxy, startSilentProxy } from '../support/silent-proxy.ts';
import { useWorld } from '../support/world.ts';
import { tenantRecord } from '../tenancy/records.ts';

const silenceMs = 1_000;
/** A silent server is never noticed without the limit. */
const patienceMs = 30_000;

describe('silence limit of database connections', () => {
  const world = useWorld();
  let proxy: SilentProxy;

  beforeEach(async () => {
    proxy = await startSilentProxy();
  });
  afterEach(() => proxy.close());

  /** Returns the milliseconds until the query fails. */
  async function failsAfter(query: () => Promise<unknown>): Promise<number> {
    const startedAt = performance.now();
    const outcome = await Promise.race([
      query().then(
        () => 'succeeded',
        () => 'failed',
      ),
      sleep(patienceMs, 'still waiting', { ref: false }),
    ]);
    expect(outcome).to.equal('failed');
    return performance.now() - startedAt;
  }

  it('a query of the control pool fails within the limit, on a connection that was idle for longer', async () => {
    const pool = new pg.Pool({
      ...connectionConfig(proxy.through(world.config.databaseUrl ?? ''), 'control'),
      max: 1,
    });
    pool.on('error', () => {});
    dropDeadConnections(pool, silenceMs);
    await pool.query('select 1');
    await sleep(2 * silenceMs);
    await pool.query('select 1');
    await sleep(2 * silenceMs);
    proxy.silence(new URL(world.config.databaseUrl ?? '').pathname.slice(1));
    expect(await failsAfter(() => pool.query('select 1'))).to.be.within(silenceMs * 0.9, patienceMs);
    expect(pool.totalCount).to.equal(0);
    await pool.end();
  });

  it('a query of a tenant fails within the limit, on a connection that was idle for longer', async () => {
    const tenant = await tenantRecord(world, world.acme);
    const budget = new ConnectionBudget({ max: 1, maxPerTenant: 1, maxPerTenantShared: 1, maxWaitMs: patienceMs });
    const pool = new TenantPool(budget, {
      connectionString: proxy.through(tenant.databaseUrl),
      expected: { guid: tenant.guid, head: await tenantHead() },
      silenceMs,
      openMs: patienceMs,
    });
    const query = async () => {
      const client = await pool.connect();
      try {
        await client.query('select 1');
      } finally {
        client.release();
      }
    };
    await query();
    await sleep(2 * silenceMs);
    await query();
    await sleep(2 * silenceMs);
    proxy.silence(world.acme.database);
    expect(await failsAfter(query)).to.be.within(silenceMs * 0.9, patienceMs);
    expect(proxy.opened(world.acme.database)).to.equal(1);
    await pool.end();
    await budget.close();
    expect(budget.usage).to.deep.equal({ open: 0, inUse: 0, waiting: 0 });
  });
});
