import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import pg from 'pg';
import { createControlPool } from '../../../src/control/control-pool.ts';
import { openControlDatabase, queryControl } from '../../../src/control/database.ts';
import { tenantHead } from '../../../src/control/tenant-head.ts';
import {
  connectionConfig,
  timeLimits,
  withConnection,
} from '../../../src/lib/postgres/connection.ts';
import { removeDeadConnections } from '../../../src/lib/postgres/dead-connections.ts';
import { ConnectionBudget } from '../../../src/tenancy/connections/connection-budget.ts';
import { TenantPool } from '../../../src/tenancy/connections/tenant-pool.ts';
import { eventually } from '../../support/eventually.ts';
import { type SilentProxy, startSilentProxy } from '../../support/silent-proxy.ts';
import { type TestTenant, useWorld } from '../../support/world.ts';
import { tenantRecord } from '../../tenancy/records.ts';

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
    removeDeadConnections(pool, silenceMs);

    await pool.query('select 1');
    await sleep(2 * silenceMs);
    await pool.query('select 1');
    await sleep(2 * silenceMs);
    proxy.silence(new URL(world.config.databaseUrl ?? '').pathname.slice(1));

    expect(await failsAfter(() => pool.query('select 1'))).to.be.within(
      silenceMs * 0.9,
      patienceMs,
    );
    expect(pool.totalCount).to.equal(0);

    await pool.end();
  });

  it('a query that a stalled network has held back is not delivered after it has failed', async () => {
    const text = 'x'.repeat(1024 * 1024);

    const arrivedAfter = async (
      database: string,
      query: () => Promise<unknown>,
    ): Promise<number> => {
      const goOn = proxy.stall(database);
      await failsAfter(query);

      const before = proxy.received(database);
      goOn();
      await eventually(async () => proxy.open(database) === 0);
      return proxy.received(database) - before;
    };

    const { controlUrl } = world.installation;
    const controlName = new URL(controlUrl).pathname.slice(1);

    const control = new pg.Pool({
      ...connectionConfig(proxy.through(controlUrl), 'control'),
      max: 1,
    });
    control.on('error', () => {});
    removeDeadConnections(control, silenceMs);
    await control.query('select 1');

    const { pool, budget } = await tenantPool();
    const client = await pool.connect();

    const ofControl = await arrivedAfter(controlName, () => control.query('select $1', [text]));
    const ofTenant = await arrivedAfter(world.acme.database, () =>
      client.query('select $1', [text]),
    );

    expect(ofControl).to.be.below(text.length);
    expect(ofTenant).to.be.below(text.length);

    client.release();
    await control.end();
    await pool.end();
    await budget.close();
  });

  it('a connection that is not answered after its login ends, and its place in the pool is free', async () => {
    const { controlUrl } = world.installation;
    const url = proxy.through(controlUrl);
    const control = openControlDatabase(url, createControlPool(url, 1));
    const held = proxy.hold(new URL(controlUrl).pathname.slice(1), packet =>
      packet.includes('tcp_keepalives_idle'),
    );
    const query = () => queryControl(control, 'probe', 'select 1', []);

    await failsAfter(query);

    expect(held.isHolding).to.equal(true);
    expect(await query()).to.have.length(1);
    await control.close();
  });

  it('a command whose connection is not answered after its login fails', async () => {
    const { controlUrl } = world.installation;
    const { connectMs } = timeLimits.operator;
    Object.assign(timeLimits.operator, { connectMs: 1_000 });
    proxy.hold(new URL(controlUrl).pathname.slice(1), packet =>
      packet.includes('tcp_keepalives_idle'),
    );

    await failsAfter(() =>
      withConnection(proxy.through(controlUrl), client => client.query('select 1')),
    );
    Object.assign(timeLimits.operator, { connectMs });
  });

  async function tenantPool(max = 1) {
    const budget = new ConnectionBudget({
      max,
      maxPerTenant: max,
      maxPerTenantShared: max,
      maxWaitMs: patienceMs,
    });
    const pool = await addPool(budget, world.acme);
    return { pool, budget };
  }

  async function addPool(budget: ConnectionBudget, tenant: TestTenant) {
    const { guid, databaseUrl } = await tenantRecord(world, tenant);
    return new TenantPool(budget, {
      ...connectionConfig(proxy.through(databaseUrl), 'api'),
      expected: { guid, head: await tenantHead() },
      silenceMs,
      openMs: patienceMs,
    });
  }

  it('a connection that falls silent during a query ends the idle ones with it, so that no further query waits as long', async () => {
    const { controlUrl } = world.installation;
    const control = new pg.Pool({
      ...connectionConfig(proxy.through(controlUrl), 'control'),
      max: 2,
    });
    control.on('error', () => {});
    removeDeadConnections(control, silenceMs);
    const { pool: tenant, budget } = await tenantPool(2);

    for (const { pool, database } of [
      { pool: control, database: new URL(controlUrl).pathname.slice(1) },
      { pool: tenant, database: world.acme.database },
    ]) {
      const clients = [await pool.connect(), await pool.connect()];
      for (const client of clients) client.release();
      proxy.silence(database, packet => packet.includes('silencing'));

      await failsAfter(async () => {
        const client = await pool.connect();
        try {
          await client.query(`select 'silencing'`);
        } finally {
          client.release();
        }
      });

      // long before they would end because they are idle
      await eventually(() => proxy.open(database) === 0, timeLimits.api.idleMs / 2);
    }

    await control.end();
    await tenant.end();
    await budget.close();
  });

  it('a connection of one tenant that falls silent ends the idle ones of another tenant on the server, but for those that were answered since', async () => {
    const { pool: acme, budget } = await tenantPool(3);
    const globex = await addPool(budget, world.globex);
    const [before, since] = [await globex.connect(), await globex.connect()];
    before.release();
    proxy.silence(world.acme.database, packet => packet.includes('silencing'));

    await failsAfter(async () => {
      const client = await acme.connect();
      const silent = client.query(`select 'silencing'`);
      await since.query('select 1');
      since.release();
      await silent.finally(() => client.release());
    });

    await eventually(() => !before.isAlive && budget.usage.open === 1);
    expect(await globex.connect()).to.equal(since);
    since.release();

    await Promise.all([acme.end(), globex.end()]);
    await budget.close();
  });

  it('a query of a tenant fails within the limit, on a connection that was idle for longer', async () => {
    const { pool, budget } = await tenantPool();
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
