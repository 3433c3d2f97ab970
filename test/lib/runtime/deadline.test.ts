import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { type Installation, openInstallation } from '../../../src/control/installation.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { outcomeUnknownDetail } from '../../../src/lib/problems.ts';
import { type RunningServer, startServer } from '../../../src/service/server.ts';
import { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { rawRequest, sendRaw } from '../../support/raw-http.ts';
import { type SilentProxy, startSilentProxy } from '../../support/silent-proxy.ts';
import { sql, useWorld } from '../../support/world.ts';

/**
 * Long, because on a busy machine what succeeds takes a second too; below the time to connect
 * to the control database (3 s). A change with less than 1 s left shares no transaction.
 */
const deadlineMs = 2_500;
/**
 * Far below the wait for a connection (`ACQUIRE_TIMEOUT_MS`), far above the delay of a busy
 * machine.
 */
const acquireTimeoutMs = 60_000;
const maxEndMs = 30_000;
const statuses = '/api/v1/EntityStatus';
const readThrough = { 'Cache-Control': 'no-cache' };

describe('deadline of a request', () => {
  const world = useWorld();
  let proxy: SilentProxy;
  let installation: Installation;
  let service: RunningServer;
  let admin: Client;
  let anonymous: Client;
  let url: string;

  beforeEach(async () => {
    proxy = await startSilentProxy();
    const databaseUrl = proxy.through(world.installation.controlUrl);
    const limits = { CONTROL_CONNECTIONS: '8', TENANT_CONNECTIONS: '2' };
    const settings = { ...limits, ACQUIRE_TIMEOUT_MS: String(acquireTimeoutMs) };
    const config = readConfig({ ...world.environment, DATABASE_URL: databaseUrl, ...settings });
    installation = await openInstallation(config);
    const { log, passwords } = world;
    service = await startServer({ config, installation, log, passwords, deadlineMs });
    url = `http://127.0.0.1:${service.port}`;
    anonymous = new Client(url);
    admin = (await world.login(world.acme)).at(url);
    // A service that stopped while its control database was silent could not give its
    // connections back.
    await eventually(async () => (await admin.get(statuses)).status === 200);
  });
  afterEach(async () => {
    await proxy.close();
    await service.stop();
    await installation.close();
  });

  /**
   * Checks that each response is 503 `unavailable`, not before the deadline, and before the
   * wait for a connection would end.
   */
  async function failAtDeadline(
    requests: () => Promise<{ status: number; body: { code: string } }>[],
  ): Promise<void> {
    const startedAt = performance.now();
    const responses = await Promise.all(requests());
    for (const { status, body } of responses) {
      expect(status).to.equal(503);
      expect(body.code).to.equal('unavailable');
    }
    expect(performance.now() - startedAt).to.be.within(deadlineMs - 100, maxEndMs);
  }

  it('a read of a silent database gets 503 at the deadline, whether it waits for a query or a connection', async () => {
    proxy.silence(world.acme.database);
    await failAtDeadline(() => Array.from({ length: 8 }, () => admin.get(statuses, readThrough)));
    await failAtDeadline(() => Array.from({ length: 8 }, () => admin.get('/api/v1/Countries')));

    // The requests of other tenants are served, and no connection or waiter is left.
    expect((await (await world.login(world.globex)).at(url).get(statuses)).status).to.equal(200);
    await eventually(
      () =>
        service.databases.budgets.usage.inUse === 0 &&
        service.databases.budgets.usage.waiting === 0,
    );
  });

  it('a login gets 503 at the deadline while the control database is silent, and frees its connections', async () => {
    proxy.silence(new URL(world.installation.controlUrl).pathname.slice(1));
    const login = () =>
      anonymous.post('/api/v1/auth/login', world.acme.admin, { 'X-Tenant': world.acme.guid });
    await failAtDeadline(() => Array.from({ length: 8 }, login));
    const { pool } = installation;
    // The logins have used at least five. What the service does by itself, such as its polls,
    // goes on to try to connect.
    await eventually(() => pool.waitingCount === 0 && pool.totalCount - pool.idleCount < 5);
  });

  it('a change of a silent database gets 503 at the deadline and is not made', async () => {
    proxy.silence(world.acme.database);
    await failAtDeadline(() => [admin.post(statuses, { Title: 'too late' })]);
    await sleep(50);
    expect(
      await sql(world.acme, `select from entity_statuses where title = 'too late'`),
    ).to.deep.equal([]);
  });

  it('a change whose commit is made but not confirmed gets 503 without Retry-After by the deadline', async () => {
    for (const title of ['until the deadline', 'until the connection ends']) {
      const writer = admin.at(url);
      proxy.silence(world.acme.database, packet => packet.includes(title));

      const response = writer.post(statuses, { Title: title });
      await eventually(async () => (await stored(title)) === 1);
      if (title === 'until the connection ends') proxy.cut();
      const { status, body, headers } = await response;

      expect(status).to.equal(503);
      expect(body.code).to.equal('unavailable');
      expect(body.detail).to.equal(outcomeUnknownDetail);
      expect(headers.get('retry-after')).to.equal(null);
      expect(await stored(title)).to.equal(1);
    }
  });

  it('changes that share a commit which is made but not confirmed get 503 without Retry-After', async () => {
    // eight of them share a transaction
    const titles = Array.from({ length: 9 }, (_, index) => `shared ${index}`);

    await withConnection(world.acme.adminUrl, async session => {
      await session.query('begin; lock table entity_statuses in share mode');
      const blocked: Promise<unknown>[] = [];
      for (const title of ['blocked 0', 'blocked 1']) {
        blocked.push(admin.post(statuses, { Title: title }));
        await eventually(() => service.databases.budgets.usage.inUse === blocked.length);
      }

      const sent = titles.map(title => admin.post(statuses, { Title: title }));
      await eventually(() => service.databases.budgets.usage.waiting === 2);
      proxy.silence(world.acme.database, packet => packet.includes('begin; set local'));
      await session.query('rollback');

      const responses = await Promise.all(sent);
      await Promise.all(blocked);

      const unconfirmed = responses.filter(({ body }) => body.detail === outcomeUnknownDetail);
      expect(unconfirmed).to.have.length.within(8, 9);
      for (const { headers } of unconfirmed) expect(headers.get('retry-after')).to.equal(null);

      const [row] = await sql<{ count: number }>(
        world.acme,
        `select count(*)::int from entity_statuses where title like 'shared %'`,
      );
      expect(row?.count).to.be.within(8, 9);
    });
  });

  it('a refresh token whose refresh reaches the deadline is not exchanged, and stays valid', async () => {
    const { tokens } = await world.login(world.acme);
    const refresh = () =>
      anonymous.post(
        '/api/v1/auth/refresh',
        { refreshToken: tokens?.refreshToken },
        { 'X-Tenant': world.acme.guid },
      );

    await withConnection(world.installation.controlUrl, async blocker => {
      await blocker.query('begin; select from sessions for update');
      await failAtDeadline(() => [refresh()]);
      await blocker.query('commit');
    });

    const [session] = await withConnection(world.installation.controlUrl, async client => {
      const text =
        'select refresh_generation, revoked_at from sessions order by created_at desc limit 1';
      return (await client.query(text)).rows;
    });

    expect(session).to.deep.equal({ refresh_generation: 0, revoked_at: null });
    expect((await refresh()).status).to.equal(200);
  });

  async function stored(title: string): Promise<number> {
    return (await sql(world.acme, 'select from entity_statuses where title = $1', [title])).length;
  }

  it('the time in which a client sends its body is not counted', async () => {
    const body = JSON.stringify(world.acme.admin);
    const head = rawRequest('POST /api/v1/auth/login', [
      `X-Tenant: ${world.acme.guid}`,
      'Content-Type: application/json',
      `Content-Length: ${body.length}`,
    ]);

    let sendBody = (_: string): void => {};
    const response = sendRaw(url, head, {
      until: /accessToken/,
      exposeWrite: write => (sendBody = write),
    });

    await sleep(deadlineMs + 300);
    sendBody(body);

    expect((await response).statuses).to.deep.equal([200]);
  });
});
