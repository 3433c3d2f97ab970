import { connect } from 'node:net';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { ApiResponse } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { rawRequest, sendRaw } from '../../support/raw-http.ts';
import { controlSql, sql, type TestTenant, useLogin, useWorld } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

interface Line {
  [name: string]: unknown;
  traceId: string;
  level: number;
  err?: { type: string; code?: string; message?: string; stack?: string };
}

describe('log of requests', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  const linesOf = (traceId: string): Line[] =>
    world.logs.filter(line => line.includes(traceId)).map(line => JSON.parse(line));
  const isAccessLine = (line: Line): boolean => 'method' in line;

  /**
   * Returns the access log line of a response; the service writes it once the response is sent.
   */
  const accessLineOf = ({ headers }: ApiResponse): Promise<Line> =>
    eventually(() => linesOf(headers.get('x-request-id') ?? '–').find(isAccessLine));

  it('each request has one log line with trace id, tenant, user, route, status and duration', async () => {
    const { body: user } = await admin.get('/api/v1/auth/me');
    const startedAt = [Date.now(), performance.now()] as const;

    const response = await admin.get(`${path}/1?secret=in-the-query`);
    const line = await accessLineOf(response);
    const [latest, maxMs] = [Date.now(), Math.ceil(performance.now() - startedAt[1])];

    expect(line).to.include({
      traceId: response.headers.get('x-request-id'),
      method: 'GET',
      route: `${path}/:id`,
      status: 200,
      tenant: world.acme.guid,
      user: user.userGuid,
      ip: '127.0.0.1',
    });

    expect(line.ms).to.be.a('number').within(0, maxMs);
    expect(line.time).to.be.a('number').within(startedAt[0], latest);
    expect(linesOf(line.traceId)).to.have.length(1);
  });

  it('the log line of a request says if X-Tenant names another tenant than the token', async () => {
    const mixed = await admin.get(path, { 'X-Tenant': world.globex.guid });
    expect(await accessLineOf(mixed)).to.include({
      status: 200,
      tenant: world.acme.guid,
      otherTenantNamed: true,
    });
    const same = await admin.get(path, { 'X-Tenant': world.acme.guid.toUpperCase() });
    expect(await accessLineOf(same)).not.to.have.property('otherTenantNamed');
  });

  it('a client that disconnects before its body is read is logged as 499, not as an error', async () => {
    let before = world.logs.length;
    const head = [
      `X-Tenant: ${world.acme.guid}`,
      'Content-Type: application/json',
      'Content-Length: 100',
    ];
    const findLine = () =>
      world.logs.slice(before).find(text => text.includes('"route":"/api/v1/auth/reset-password"'));

    await withConnection(world.installation.controlUrl, async client => {
      await client.query('begin; lock table tenants in access exclusive mode');
      await client.query(
        `notify control_changes, '*:*'; commit; begin; lock table tenants in access exclusive mode`,
      );
      const isWaiting = async () => (await readLockWaiters(client)).length > 0;

      // A request that arrives before the notification finds the tenant in the cache, and waits
      // for its body instead.
      await eventually(async () => {
        before = world.logs.length;
        const socket = connect(Number(new URL(world.url).port), '127.0.0.1');
        socket.write(rawRequest('POST /api/v1/auth/reset-password', head, '{"email"'));
        const waits = await eventually(isWaiting, 5_000).catch(() => false);
        socket.destroy();
        await eventually(findLine);
        return waits;
      });

      await client.query('rollback');
    });

    const { traceId, status } = JSON.parse(findLine() ?? '');
    expect(status).to.equal(499);

    await admin.get(path);
    expect(linesOf(traceId).filter(({ level }) => level > 30)).to.deep.equal([]);
  });

  it('each rejected request has one log line with the problem code of its response', async () => {
    const rejected: [ApiResponse, object][] = [
      [await world.anonymous.get(path), { status: 403, code: 'tenant_required', route: path }],
      [
        await world.anonymous.get(path, { 'X-Tenant': world.acme.guid }),
        { status: 401, code: 'unauthorized', route: path, tenant: world.acme.guid },
      ],
      [await admin.withToken('a.b.c').get(path), { status: 401, code: 'invalid_token' }],
      [await admin.get(`${path}/999`), { status: 404, code: 'not_found', tenant: world.acme.guid }],
      [await admin.get('/nothing'), { status: 404, code: 'not_found', tenant: world.acme.guid }],
      [await admin.post(path, {}), { status: 400, code: 'validation_failed' }],
      [await admin.post(path, '{'), { status: 400, code: 'malformed_json' }],
      [
        await admin.send('PATCH', path),
        { status: 405, code: 'method_not_allowed', method: 'PATCH' },
      ],
    ];

    for (const [response, expected] of rejected) {
      const line = await accessLineOf(response);
      expect(line).to.include(expected);
      expect(linesOf(line.traceId)).to.have.length(1);
      expect(response.body.traceId).to.equal(line.traceId);
    }
  });

  it('a request whose client disconnects while sending its body is logged as 499 with route and tenant', async () => {
    const head = ['Content-Type: application/json', 'Content-Length: 500'];
    const authorization = `Authorization: Bearer ${admin.tokens?.accessToken}`;
    const post = rawRequest(`POST ${path}`, [authorization, ...head], '{"Title":');
    const before = world.logs.length;

    // On a busy machine the client may disconnect before the service has resolved the tenant.
    // Then the client tries again.
    let tries = 0;
    const line = await eventually(async () => {
      await sendRaw(world.url, post, { withinMs: 100 * 2 ** tries++ });
      const lines = world.logs.slice(before).filter(text => text.includes('"status":499'));
      return lines.map(text => JSON.parse(text)).find(({ tenant }) => tenant);
    });

    expect(line).to.include({ method: 'POST', route: path, tenant: world.acme.guid });
  });

  it('each of 100 concurrent requests has one log line under its own trace id', async () => {
    const responses = await Promise.all(Array.from({ length: 100 }, () => admin.get(path)));
    const ids = responses.map(({ headers }) => headers.get('x-request-id') ?? '–');
    expect(new Set(ids).size).to.equal(100);
    await eventually(() => ids.every(id => linesOf(id).length > 0));
    for (const id of ids) expect(linesOf(id)).to.have.length(1);
  });

  it('a client cannot forge a log line with line feeds in paths, headers or bodies', async () => {
    const forged = '{"level":30,"msg":"forged"}';
    const before = world.logs.length;

    const responses = [
      await admin.get(`/${encodeURIComponent(`x\r\n${forged}`)}`, {
        'User-Agent': forged,
        Referer: forged,
      }),
      await admin.get(`${path}/${encodeURIComponent(`1\n${forged}`)}`),
      await admin.post(path, { Title: `x\n${forged}` }),
      await admin.get(path, { 'X-Tenant': forged, 'X-Request-Id': forged }),
    ];

    for (const response of responses) await accessLineOf(response);

    for (const line of world.logs.slice(before)) {
      expect(line.trimEnd()).not.to.include('\n');
      expect(line).not.to.match(/forged/);
      expect(() => JSON.parse(line)).not.to.throw();
    }
  });

  describe('log of failures', () => {
    /** Matches text that discloses the cause of a failure, and so may be in the log only. */
    const internals = (tenant: TestTenant): RegExp =>
      new RegExp(
        `entity_statuses|select|42P01|postgres|node_modules|\\.ts|${tenant.database}|${tenant.slug}|127\\.0\\.0\\.1`,
        'i',
      );

    /**
     * Expects a response that says only that the request failed, and its cause in the log under
     * the same trace id.
     */
    async function expectFailure(
      response: ApiResponse,
      tenant: TestTenant,
      status: number,
      code: string,
    ): Promise<Line> {
      expect(response.status).to.equal(status);
      expect(response.headers.get('content-type')).to.match(/^application\/problem\+json\b/);
      expect(response.headers.get('cache-control')).to.equal('no-store');
      const members = ['type', 'title', 'status', 'code', 'traceId'];
      const isRepeatable = response.headers.has('retry-after');
      expect(response.body).to.have.all.keys(members.concat(isRepeatable ? 'retryAfter' : []));
      expect(response.body.code).to.equal(code);
      expect(JSON.stringify(response.body)).not.to.match(internals(tenant));
      const access = await accessLineOf(response);
      expect(access).to.include({ status, code });
      const causes = linesOf(access.traceId).filter(line => !isAccessLine(line));
      expect(causes).to.have.length(1);
      expect(causes[0]).to.include({ traceId: response.body.traceId, level: 50, code });
      expect(causes[0]?.err?.stack).to.match(/^\s+at /m);
      return causes[0] as Line;
    }

    it('a failure in the tenant database is logged with its cause under the trace id of the response', async () => {
      const broken = await world.provision('broken');
      const client = await world.login(broken);
      await sql(broken, 'alter table entity_statuses rename to misplaced');
      const read = await expectFailure(await client.get(path), broken, 500, 'internal_error');
      expect(read.err).to.include({ code: '42P01' });
      const written = await client.post(path, { Title: 'Valuable-Value' });
      await expectFailure(written, broken, 500, 'internal_error');
      expect((await admin.get(path)).status).to.equal(200);

      await sql(broken, 'alter table misplaced rename to entity_statuses');
      expect((await client.get(path)).status).to.equal(200);
    });

    it('a failure to write the audit entry rolls the change back and is logged with its cause', async () => {
      const broken = await world.provision('unaudited');
      const client = await world.login(broken);

      await sql(
        broken,
        `create function break() returns trigger language plpgsql as $$ begin raise 'broken'; end $$`,
      );
      await sql(
        broken,
        'create trigger break before insert on audit_log for each row execute function break()',
      );

      const failed = await client.post(path, { Title: 'Valuable-Value' });
      await expectFailure(failed, broken, 500, 'internal_error');

      expect(
        await sql(broken, `select 1 from entity_statuses where title = 'Valuable-Value'`),
      ).to.deep.equal([]);
    });

    it('a failure in the control database is logged with its cause', async () => {
      const em = world.control.em.fork();
      await em.execute('alter table sessions rename to misplaced');

      try {
        const response = await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
          'X-Tenant': world.acme.guid,
        });
        const { err } = await expectFailure(response, world.acme, 500, 'internal_error');
        expect(err).to.include({ code: '42P01' });
      } finally {
        await em.execute('alter table misplaced rename to sessions');
      }
    });

    it('a request to a tenant whose database is missing gets 503 with Retry-After', async () => {
      const tenant = await world.provision('gone');
      const client = await world.login(tenant);
      await controlSql(
        world,
        `update tenants set database_name = database_name || '_x' where id = ?`,
        [tenant.id],
      );

      const response = await eventually(async () => {
        const response = await client.get(path);
        return response.status !== 200 && response;
      });

      expect(Number(response.headers.get('retry-after'))).to.be.at.least(1);
      const { err } = await expectFailure(response, tenant, 503, 'unavailable');
      expect(err).to.include({ code: '3D000' });
    });
  });

  it('no log line contains a token, a password or a value of a body', async () => {
    const other = await world.login(world.globex);
    const values = ['Valuable-Value', 'valuable.value@acme.test', 'Wrong-Password-1234'];

    await other.post(path, { Title: values[0], Unknown: values[0] });
    await other.post(path, { Title: values[0], Weighting: values[0] });

    const named = { 'X-Tenant': world.globex.guid };
    await world.anonymous.post(
      '/api/v1/auth/login',
      { email: values[1], password: values[2] },
      named,
    );
    const { body } = await world.anonymous.post(
      '/api/v1/auth/refresh',
      { refreshToken: other.tokens?.refreshToken },
      named,
    );
    const last = await other.withToken(`${body.accessToken}x`).get(path);
    await accessLineOf(last);

    const secrets = [
      ...values,
      ...[admin, other].flatMap(({ tokens }) => [tokens?.accessToken, tokens?.refreshToken]),
      body.accessToken,
      body.refreshToken,
      ...[world.acme, world.globex].flatMap(({ admin: { password, email } }) => [password, email]),
      world.environment.MASTER_KEY,
    ];

    for (const secret of secrets) {
      expect(secret).to.be.a('string').and.have.length.above(8);
      const signature = String(secret).split('.').at(-1) ?? '';
      expect(world.logs.filter(line => line.includes(signature))).to.deep.equal([]);
    }
  });
});
