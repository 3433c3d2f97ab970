import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';
import { expectRefused, newestAudit } from './expect.ts';

const statuses = '/api/v1/EntityStatus';
const keyed = (key: string = randomUUID()) => ({ 'Idempotency-Key': key });
/** The parts that must be equal in the responses to repeated requests. */
const outcome = ({ status, headers, body }: ApiResponse) => ({
  status,
  body,
  location: headers.get('location'),
  etag: headers.get('etag'),
  type: headers.get('content-type'),
});
const replayed = ({ headers }: ApiResponse) => headers.get('idempotency-replayed');

describe('Idempotency-Key', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  it('a POST that is repeated with its key makes one record, one audit entry, and returns the same response', async () => {
    const audited = await newestAudit(admin);
    const key = keyed();

    const first = await admin.post(statuses, { Title: 'Once' }, key);
    const again = await admin.post(statuses, { Title: 'Once' }, key);

    expect(first.status).to.equal(201);
    expect(outcome(again)).to.deep.equal(outcome(first));
    expect(replayed(first)).to.equal(null);
    expect(replayed(again)).to.equal('true');
    expect(await newestAudit(admin)).to.equal(audited + 1);
    expect((await admin.get(`${statuses}/${first.body.Id + 1}`)).status).to.equal(404);
  });

  it('a key that is used again with another query is refused', async () => {
    const key = keyed();
    await admin.post(`${statuses}?note=first`, { Title: 'Query' }, key);
    const other = await admin.post(`${statuses}?note=second`, { Title: 'Query' }, key);

    expect(other.status).to.equal(422);
    expect(other.body.code).to.equal('idempotency_key_reused');
  });

  it('every POST of records takes a key: activities, uses of promotions, and undeleted records too', async () => {
    const entity = await admin.post('/api/v1/Entities', { Name: 'Once', EntityType: 'customer' });
    const promotion = await admin.post('/api/v1/Promotions', {
      PromoCode: 'ONCE',
      Name: 'Once',
      DiscountType: 'Percentage',
      DiscountValue: 5,
    });
    const country = await admin.post('/api/v1/Countries', {
      CountryCode: 'ZZ',
      CountryName: 'Nowhere',
    });
    await admin.delete(`/api/v1/Countries/code/${country.body.CountryCode}`);

    for (const [path, body] of [
      ['/api/v1/Activity', { ActivityCode: 7, Comment: 'once' }],
      [`/api/v1/Promotions/${promotion.body.Id}/entity/${entity.body.Id}/used`, undefined],
      ['/api/v1/Countries/code/ZZ/undelete', undefined],
    ] as const) {
      const key = keyed();
      const first = await admin.post(path, body, key);
      const again = await admin.post(path, body, key);

      expect(first.status, path).to.be.oneOf([200, 201]);
      expect(outcome(again), path).to.deep.equal(outcome(first));
      expect(replayed(again), path).to.equal('true');
    }

    const [{ count } = { count: '' }] = await sql<{ count: string }>(
      world.acme,
      `select count(*) from activities where comment = 'once'`,
    );
    expect(count).to.equal('1');
  });

  it('50 equal requests with one key at once, in two processes, make one record and get 50 equal responses', async () => {
    const other = await world.startAnotherServer();
    const audited = await newestAudit(admin);
    const key = keyed();
    const clients = [admin, admin.at(other.url)];

    // As the guide says, a request that waits too long for the first one is sent again.
    const send = async (client: Client): Promise<ApiResponse> => {
      const response = await client.post(statuses, { Title: 'Many' }, key);
      return response.body.code === 'idempotency_in_progress' ? send(client) : response;
    };

    const responses = await Promise.all(
      Array.from({ length: 50 }, (_, i) => send(clients[i % 2] as Client)),
    );

    for (const response of responses) {
      expect(outcome(response)).to.deep.equal(outcome(responses[0] as ApiResponse));
    }
    expect(responses.filter(response => replayed(response) === null)).to.have.length(1);
    expect(await newestAudit(admin)).to.equal(audited + 1);
  });

  it('a key that is used for another body or another path gets 422, and changes nothing', async () => {
    const key = keyed();
    await admin.post(statuses, { Title: 'First' }, key);
    const audited = await newestAudit(admin);

    expectRefused(
      await admin.post(statuses, { Title: 'Second' }, key),
      422,
      'idempotency_key_reused',
    );
    const order = await admin.post('/api/v1/OrderStatuses', { Title: 'First', Name: 'First' }, key);
    expectRefused(order, 422, 'idempotency_key_reused');

    expect(await newestAudit(admin)).to.equal(audited);
    expect((await admin.post(statuses, { Title: 'First' }, key)).status).to.equal(201);
  });

  it('equal keys of other users and of other tenants are other keys', async () => {
    const key = keyed();
    const colleague = await world.loginAs(world.acme, {
      permissions: ['full.read', 'full.manage'],
    });

    const responses = [admin, colleague, globex].map(client =>
      client.post(statuses, { Title: 'Shared key' }, key),
    );

    for (const response of await Promise.all(responses)) {
      expect(response.status).to.equal(201);
      expect(replayed(response)).to.equal(null);
    }
  });

  it('a request that was refused may be repeated with its key once its cause is gone', async () => {
    const currency = { Code: 'ONE', Name: 'One' };
    const { body } = await admin.post('/api/v1/Currency', currency);
    const key = keyed();

    expectRefused(await admin.post('/api/v1/Currency', currency, key), 400, 'duplicate');
    expectRefused(
      await admin.post('/api/v1/Currency', { Code: 'ONE' }, key),
      400,
      'validation_failed',
    );

    await sql(world.acme, 'delete from currencies where id = $1', [body.Id]);
    const created = await admin.post('/api/v1/Currency', currency, key);
    expect(created.status).to.equal(201);
    expect(replayed(created)).to.equal(null);
  });

  it('a caller who has lost the permission does not get the stored response', async () => {
    const key = keyed();
    await admin.post(statuses, { Title: 'Secret' }, key);
    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });
    expectRefused(await reader.post(statuses, { Title: 'Secret' }, key), 403, 'forbidden');
  });

  it('while the first request runs, a second gets 409 after 2 s, with Retry-After', async () => {
    const key = keyed();
    await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin; lock table entity_statuses in exclusive mode');
      const first = admin.post(statuses, { Title: 'Slow' }, key);
      await eventually(async () => (await readLockWaiters(client)).length === 1);

      const second = await admin.post(statuses, { Title: 'Slow' }, key);
      expectRefused(second, 409, 'idempotency_in_progress');
      expect(Number(second.headers.get('retry-after'))).to.be.above(0);

      await client.query('commit');
      expect((await first).status).to.equal(201);
      expect(outcome(await admin.post(statuses, { Title: 'Slow' }, key))).to.deep.equal(
        outcome(await first),
      );
    });
  });

  it('a request whose connection is terminated gets 503, and its repetition makes the change once', async () => {
    const audited = await newestAudit(admin);
    const key = keyed();

    await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin; lock table entity_statuses in exclusive mode');
      const first = admin.post(statuses, { Title: 'Killed' }, key);
      const writing = await eventually(async () => (await readLockWaiters(client))[0]);

      await client.query('select pg_terminate_backend($1)', [writing]);
      await client.query('commit');

      const { status, headers } = await first;
      expect(status).to.equal(503);
      expect(headers.has('retry-after')).to.equal(true);
    });

    expect((await admin.post(statuses, { Title: 'Killed' }, key)).status).to.equal(201);
    expect(await newestAudit(admin)).to.equal(audited + 1);
  });

  it('a POST under /api/v1/auth refuses a key with 400, and does nothing', async () => {
    const { email, password } = world.acme.admin;
    const tenant = { 'X-Tenant': world.acme.guid };

    const refused = await world.anonymous.post(
      '/api/v1/auth/login',
      { email, password },
      { ...tenant, ...keyed() },
    );

    expect(refused.status).to.equal(400);
    expect(refused.body.code).to.equal('invalid_request');
    expect(refused.body.detail).to.include('Idempotency-Key');

    const client = await world.login(world.acme);
    expect((await client.post('/api/v1/auth/logout', undefined, keyed())).status).to.equal(400);
    expect((await client.get('/api/v1/auth/me')).status, 'not logged out').to.equal(200);
  });

  it('a key expires after 24 hours, and expired keys are deleted with later ones', async () => {
    const key = keyed();
    const first = await admin.post(statuses, { Title: 'Old' }, key);
    await sql(
      world.acme,
      `update idempotency_keys set created_at = now() - interval '24 hours 1 second'`,
    );

    const again = await admin.post(statuses, { Title: 'Old' }, key);
    expect(again.status).to.equal(201);
    expect(replayed(again)).to.equal(null);
    expect(again.body.Id).to.be.above(first.body.Id);

    for (let i = 0; i < 5; i++) await admin.post(statuses, { Title: 'New' }, keyed());
    const expired = await sql(
      world.acme,
      `select from idempotency_keys where created_at < now() - interval '24 hours'`,
    );
    expect(expired).to.deep.equal([]);
  });

  it('a key has 1 to 255 visible ASCII characters, with or without quotation marks', async () => {
    const key = randomUUID();
    const first = await admin.post(statuses, { Title: 'Quoted' }, keyed(key));
    expect(
      outcome(await admin.post(statuses, { Title: 'Quoted' }, keyed(`"${key}"`))),
    ).to.deep.equal(outcome(first));

    for (const valid of ['!', '~'.repeat(255), '"a\\"b"', `"${'x'.repeat(255)}"`]) {
      expect((await admin.post(statuses, { Title: 'Valid' }, keyed(valid))).status, valid).to.equal(
        201,
      );
    }

    for (const invalid of [
      '',
      'two words',
      'x'.repeat(256),
      '""',
      'é',
      '"a b"',
      `${key}, ${key}`,
    ]) {
      expectRefused(
        await admin.post(statuses, { Title: 'Invalid' }, keyed(invalid)),
        400,
        'invalid_request',
      );
    }
  });
});
