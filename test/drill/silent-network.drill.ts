import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { type ServerBeside, startServerBeside } from '../support/server-beside.ts';
import { type SilentProxy, startSilentProxy } from '../support/silent-proxy.ts';
import { createWorld, type World } from '../support/world.ts';

const statuses = '/api/v1/EntityStatus';
const readThrough = { 'Cache-Control': 'no-cache' };

describe('drill: a network that falls silent', () => {
  let world: World;
  let proxy: SilentProxy;
  let server: ServerBeside;
  let admin: Client;

  beforeEach(async () => {
    world = await createWorld();
    proxy = await startSilentProxy();
    server = await startServerBeside(world, {
      DATABASE_URL: proxy.through(world.installation.controlUrl),
    });
    admin = (await world.login(world.acme)).at(server.url);
  });
  afterEach(async () => {
    await proxy.close();
    await server.stop();
    await world.close();
  });

  /**
   * Checks that each of 30 concurrent requests has a 503 within 10 s: more than there are
   * connections.
   */
  async function failWithin10s(
    request: () => Promise<{ status: number; body: { code: string } }>,
  ): Promise<void> {
    const startedAt = performance.now();
    const responses = await Promise.all(Array.from({ length: 30 }, request));
    const ms = performance.now() - startedAt;
    console.log({ ms });
    expect(new Set(responses.map(({ status, body }) => `${status} ${body.code}`))).to.deep.equal(
      new Set(['503 unavailable']),
    );
    expect(ms).to.be.below(10_000);
  }

  it('reads on connections that were idle for 12 s have a response within 10 s', async () => {
    expect((await admin.get(statuses, readThrough)).status).to.equal(200);
    await sleep(12_000);
    proxy.silence(world.acme.database);
    await failWithin10s(() => admin.get(statuses, readThrough));
  });

  it('logins on connections that were idle for 12 s have a response within 10 s', async () => {
    const login = () =>
      admin.post('/api/v1/auth/login', world.acme.admin, { 'X-Tenant': world.acme.guid });
    expect((await login()).status).to.equal(200);
    await sleep(12_000);
    proxy.silence(new URL(world.installation.controlUrl).pathname.slice(1));
    await failWithin10s(login);
  });
});
