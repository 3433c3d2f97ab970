import { expect } from 'chai';
import { writeCountersSql } from '../../../src/sales/events/write-counters.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { createServiceProcesses } from '../../support/service-processes.ts';
import { controlSql, createWorld, sql, type TestTenant, type World } from '../../support/world.ts';
import { type Receiver, startReceiver } from './receiver.ts';

const changes = 20;

describe('webhooks of several processes', () => {
  const processes = createServiceProcesses();
  let receiver: Receiver;
  let world: World;

  before(async () => {
    receiver = await startReceiver();
    world = await createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted });
  });
  after(async () => {
    await processes.killAll();
    await world.close();
    await receiver.close();
  });

  const firstTime = (path: string): string[] => [
    ...new Map(receiver.at(path).map(({ id, body }) => [id, String(body.data.Key)])).values(),
  ];

  it('while one of two processes is killed, every change arrives in order, and twice only with the same id', async () => {
    const { environment } = world;
    const killed = await processes.start(environment); // the other one is that of the world
    const tenants: [TestTenant, string][] = [
      [world.acme, '/acme'],
      [world.globex, '/globex'],
    ];

    const clients = await Promise.all(
      tenants.map(async ([tenant, path]): Promise<Client> => {
        const client = await world.login(tenant);
        const options = { Url: receiver.url(path), Resources: ['OrderStatus'] };
        expect((await client.post('/api/v1/Webhooks', options)).status).to.equal(201);
        return client;
      }),
    );

    for (let count = 0; count < changes; count++) {
      if (count === changes / 2) killed.process.kill('SIGKILL');
      for (const client of clients) {
        expect(
          (await client.post('/api/v1/OrderStatuses', { Name: `Status ${count}` })).status,
        ).to.equal(201);
      }
    }

    for (const [tenant, path] of tenants) {
      const rows = await sql<{ id: number }>(
        tenant,
        `select id from order_statuses where name like 'Status %' order by id`,
      );
      expect(rows).to.have.length(changes);
      await eventually(() => firstTime(path).length === changes);
      expect(firstTime(path)).to.deep.equal(rows.map(({ id }) => String(id)));
    }

    const seen = receiver.messages
      .filter(({ path }) => path !== '/counted')
      .map(({ path, id, body }) => `${path} ${body.data.Key} ${id}`);
    expect(new Set(seen).size).to.equal(2 * changes);
  });

  it('the rows that the service stores of a sent change are no reason to serve its tenant again', async () => {
    const client = await world.login(world.globex);
    const rows = (text: string) =>
      controlSql<{ written: string }>(world, text, [world.globex.database]).then(
        ([row]) => row?.written,
      );
    const polled = () =>
      rows(`select polled as written from webhook_tenants w join tenants t on t.id = tenant_id
             where database_name = ? and due_at is null and leased_until <= now()`);

    const webhook = { Url: receiver.url('/counted'), Resources: ['OrderStatus'] };
    const { Id } = (await client.post('/api/v1/Webhooks', webhook)).body;
    await eventually(polled);
    // A session counts rows up to 10 s later, if it counted earlier ones less than a second before.
    await eventually(async () => {
      const [sessions] = await sql<{ areQuiet: boolean }>(
        world.globex,
        `select bool_and(state_change < now() - interval '12 seconds') as "areQuiet" from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid()`,
      );
      return sessions?.areQuiet;
    });

    expect((await client.post('/api/v1/OrderStatuses', { Name: 'Counted' })).status).to.equal(201);
    await eventually(() => receiver.at('/counted').length === 1);
    const written = await eventually(polled);
    await eventually(async () => {
      expect(
        await rows(`select ${writeCountersSql} as written from pg_database where datname = ?`),
      ).to.equal(written);
      return true;
    }, 20_000);

    await client.delete(`/api/v1/Webhooks/${Id}`);
  });
});
