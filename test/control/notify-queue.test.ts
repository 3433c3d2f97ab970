import { expect } from 'chai';
import type pg from 'pg';
import { Client } from '../support/client.ts';
import { runScript } from '../support/command-line.ts';
import { createDedicatedServer } from '../support/dedicated-server.ts';
import { eventually } from '../support/eventually.ts';
import { connectForeign, fillQueue, holdQueue, smallNotifyQueue } from '../support/notify-queue.ts';
import { type ServiceProcess, useServiceProcesses } from '../support/service-processes.ts';
import { use } from '../support/use.ts';

describe('a queue of notifications that a session of another application keeps full', () => {
  const server = use(() => createDedicatedServer([smallNotifyQueue]));
  const processes = useServiceProcesses();
  let service: ServiceProcess;
  let clients: Client[];
  let filler: pg.Client;

  before(async () => {
    await server.sql('create database reports');
    filler = await connectForeign(server, 'filler');
    const tenants = [await server.provision('acme'), await server.provision('globex')];
    service = await processes.start({ ...server.environment, ACQUIRE_TIMEOUT_MS: '3000' });
    clients = await Promise.all(
      tenants.map(async ({ tenant: { guid }, logins: [admin] }) => {
        const session = await new Client(service.url).post('/api/v1/auth/login', admin, {
          'X-Tenant': guid,
        });
        return new Client(service.url, session.body);
      }),
    );
  });
  after(() => filler.end());

  const port = () => /"managementPort":(\d+)/.exec(service.output.stdout)?.[1];
  const isReady = async (): Promise<boolean> =>
    (await fetch(`http://127.0.0.1:${port()}/health/ready`)).status === 200;

  it('requests get 503 while the queue is full, and the service is ready again by itself once the session has ended', async () => {
    const holder = await connectForeign(server, 'Report Tool');
    await holdQueue(holder);
    await fillQueue(filler, 1);
    await eventually(async () => !(await isReady()));

    for (const client of clients) {
      expect((await client.post('/api/v1/EntityStatus', { Title: 'Full' })).status).to.equal(503);
      expect((await client.post('/api/v1/auth/logout')).status).to.equal(503);
    }

    await holder.end();
    await eventually(isReady, 10_000);
    for (const client of clients) {
      const created = await client.post('/api/v1/EntityStatus', { Title: 'Room again' });
      expect(created.status).to.equal(201);
    }
  });

  it('a process that starts while the queue is full waits for its end, or ends with one sentence and the next step', async () => {
    const holder = await connectForeign(server, 'Report Tool');
    await holdQueue(holder);
    await fillQueue(filler, 1);

    const refused = await runScript('src/main.ts', [], {
      ...server.environment,
      PORT: '0',
      MANAGEMENT_PORT: '0',
    });
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.equal(
      'PostgreSQL cannot be used: its queue of notifications is full, because a session of any of its databases listens ' +
        'and stays in a transaction. End that transaction: bin/backoffice doctor names the session.\n',
    );

    const starting = processes.start(server.environment);
    await eventually(async () => (await waiting()) > 0);
    await holder.end();
    expect((await starting).port).to.be.greaterThan(0);
  });

  /** Returns the number of processes that listen to the control database, and have not joined. */
  async function waiting(): Promise<number> {
    const rows = await server.control<{ count: number }>(
      `select count(*)::int as count from pg_stat_activity
        where application_name like 'backoffice-change-feed %'
          and split_part(application_name, ' ', 2) not in (select id::text from processes)`,
    );
    return rows[0]?.count ?? 0;
  }
});
