import { expect } from 'chai';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { eventually } from '../support/eventually.ts';
import { readLockWaiters } from '../support/lock-waiters.ts';
import { useLogin, useWorld } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
const noCache = { 'Cache-Control': 'no-cache' };

describe('a tenant that floods the service', () => {
  // below the time limit of a statement, 8 s
  const world = useWorld({ ACQUIRE_TIMEOUT_MS: '6000' });
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  before(async () => {
    expect((await acme.get('/api/v1/auth/me')).status).to.equal(200);
  });

  it('a flood of blocked requests delays neither other tenants nor cached responses of its own tenant', async () => {
    expect((await acme.get(`${path}/1`)).status).to.equal(200);

    await withConnection(world.acme.adminUrl, async holder => {
      await holder.query('begin; lock table entity_statuses in access exclusive mode');
      const flood = Array.from({ length: 100 }, (_, n) => acme.put(`${path}/2`, { Weighting: n }));
      await eventually(() => world.service.databases.budgets.usage.waiting > 80);

      for (let i = 0; i < 20; i++) {
        expect((await globex.get(path, noCache)).status).to.equal(200);
        expect((await acme.get(`${path}/1`)).status).to.equal(200);
      }

      const refused = await Promise.race(flood);
      expect(refused.status).to.equal(503);
      expect(refused.body.code).to.equal('overloaded');
      expect(refused.headers.get('retry-after')).to.match(/^\d+$/);

      await holder.query('rollback');
      for (const { status } of await Promise.all(flood)) expect(status).to.be.oneOf([200, 503]);
    });

    expect((await acme.get(path, noCache)).status).to.equal(200);
  });

  it('a flood of blocked lists delays neither other tenants nor cached responses of its own tenant', async () => {
    expect((await acme.get(`${path}/1`)).status).to.equal(200);
    await withConnection(world.acme.adminUrl, async holder => {
      await holder.query('begin; lock table entity_statuses in access exclusive mode');
      const flood = Array.from({ length: 100 }, () => acme.get(path, noCache));
      await eventually(async () => (await readLockWaiters(holder)).length === 1);

      for (let i = 0; i < 20; i++) {
        expect((await globex.get(path, noCache)).status).to.equal(200);
        expect((await acme.get(`${path}/1`)).status).to.equal(200);
      }

      await holder.query('rollback');
      for (const { status } of await Promise.all(flood)) expect(status).to.equal(200);
    });
  });

  it('all of 300 concurrent requests of one tenant succeed', async () => {
    const responses = await Promise.all(Array.from({ length: 300 }, () => acme.get(path)));
    expect(responses.every(({ status }) => status === 200)).to.equal(true);
  });

  it('request bodies that never end use up no capacity of other requests', async () => {
    const [endless, accessToken] = [new AbortController(), acme.tokens?.accessToken];
    const body = () =>
      new ReadableStream({
        start: controller => controller.enqueue(new TextEncoder().encode('{')),
      });

    const headers = { Authorization: `Bearer ${accessToken}`, 'Content-Type': 'application/json' };
    const init = { method: 'POST', headers, signal: endless.signal, duplex: 'half' as const };
    const hanging = Array.from({ length: 64 }, () =>
      fetch(`${world.url}${path}`, { ...init, body: body() }),
    );

    for (let i = 0; i < 10; i++) {
      expect((await acme.post(path, { Title: `meanwhile ${i}` })).status).to.equal(201);
    }

    endless.abort();
    await Promise.allSettled(hanging);
  });
});
