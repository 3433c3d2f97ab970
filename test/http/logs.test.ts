import { connect } from 'node:net';
import { expect } from 'chai';
import { withConnection } from '../../src/postgres/connection.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { rawRequest, sendRaw } from '../support/raw-http.ts';
import { createWorld, sql, type TestTenant, type World } from '../support/world.ts';

const path = '/api/v1/EntityStatus';

interface Line {
  [name: string]: unknown;
  traceId: string;
  level: number;
  err?: { type: string; code?: string; message?: string; stack?: string };
}

describe('the log', () => {
  let world: World;
  let admin: Client;

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
  });
  after(() => world.close());

  const linesOf = (traceId: string): Line[] =>
    world.logs.filter(line => line.includes(traceId)).map(line => JSON.parse(line));
  const isAccess = (line: Line): boolean => 'method' in line;

  /** The access line of an answer, which is written when the answer has left. */
  const accessOf = ({ headers }: ApiResponse): Promise<Line> =>
    eventually(() => linesOf(headers.get('x-request-id') ?? '–').find(isAccess));

  it('has one line for each request: trace id, tenant, user, pattern of the route, status, time', async () => {
    const { body: user } = await admin.get('/api/v1/auth/me');
    const startedAt = [Date.now(), performance.now()] as const;
    const answer = await admin.get(`${path}/1?secret=in-the-query`);
    const line = await accessOf(answer);
    const [latest, maxMs] = [Date.now(), Math.ceil(performance.now() - startedAt[1])];
    expect(line).to.include({
      traceId: answer.headers.get('x-request-id'),
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

  it('says when a client that has a token named another tenant beside it', async () => {
    const mixed = await admin.get(path, { 'X-Tenant': world.globex.guid });
    expect(await accessOf(mixed)).to.include({ status: 200, tenant: world.acme.guid, otherTenantNamed: true });
    const same = await admin.get(path, { 'X-Tenant': world.acme.guid.toUpperCase() });
    expect(await accessOf(same)).not.to.have.property('otherTenantNamed');
  });

  it('a client that disconnects before its body is read is logged as 499, not as an error', async () => {
    const before = world.logs.length;
    const head = [`X-Tenant: ${world.acme.guid}`, 'Content-Type: application/json', 'Content-Length: 100'];
    const findLine = () =>
      world.logs.slice(before).find(text => text.includes('"route":"/api/v1/auth/reset-password"'));
    await withConnection(world.installation.controlUrl, async client => {
      await client.query('begin; lock table tenants in access exclusive mode');
      await client.query(`notify control_changes, '*:*'; commit; begin; lock table tenants in access exclusive mode`);
      const socket = connect(Number(new URL(world.url).port), '127.0.0.1');
      socket.write(rawRequest('POST /api/v1/auth/reset-password', head, '{"email"'));
      const waiting = `select 1 from pg_locks where relation = 'tenants'::regclass and not granted`;
      await eventually(async () => (await client.query(waiting)).rows.length > 0, 30_000);
      socket.destroy();
      await eventually(findLine);
      await client.query('rollback');
    });
    const { traceId, status } = JSON.parse(findLine() ?? '');
    expect(status).to.equal(499);
    await admin.get(path);
    expect(linesOf(traceId).filter(({ level }) => level > 30)).to.deep.equal([]);
  });

  it('has one line as well for requests that are refused, with the code that the client was told', async () => {
    const refused: [ApiResponse, object][] = [
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
      [await admin.send('PATCH', path), { status: 405, code: 'method_not_allowed', method: 'PATCH' }],
    ];
    for (const [answer, expected] of refused) {
      const line = await accessOf(answer);
      expect(line).to.include(expected);
      expect(linesOf(line.traceId)).to.have.length(1);
      expect(answer.body.traceId).to.equal(line.traceId);
    }
  });

  it('tells what came of a request that its client did not wait for', async () => {
    const head = ['Content-Type: application/json', 'Content-Length: 500'];
    const authorization = `Authorization: Bearer ${admin.tokens?.accessToken}`;
    const post = rawRequest(`POST ${path}`, [authorization, ...head], '{"Title":');
    const before = world.logs.length;
    // On a busy machine the client may disconnect before the service knows its tenant: then it sends the request again.
    const line = await eventually(async () => {
      await sendRaw(world.url, post, { withinMs: 100 });
      const lines = world.logs.slice(before).filter(text => text.includes('"status":499'));
      return lines.map(text => JSON.parse(text)).find(({ tenant }) => tenant);
    }, 30_000);
    expect(line).to.include({ method: 'POST', route: path, tenant: world.acme.guid });
  });

  it('has every request of many at once, each under an id of its own', async () => {
    const answers = await Promise.all(Array.from({ length: 100 }, () => admin.get(path)));
    const ids = answers.map(({ headers }) => headers.get('x-request-id') ?? '–');
    expect(new Set(ids).size).to.equal(100);
    await eventually(() => ids.every(id => linesOf(id).length > 0));
    for (const id of ids) expect(linesOf(id)).to.have.length(1);
  });

  it('keeps to one line what a client sends with line feeds in it', async () => {
    const forged = '{"level":30,"msg":"forged"}';
    const before = world.logs.length;
    const answers = [
      await admin.get(`/${encodeURIComponent(`x\r\n${forged}`)}`, { 'User-Agent': forged, Referer: forged }),
      await admin.get(`${path}/${encodeURIComponent(`1\n${forged}`)}`),
      await admin.post(path, { Title: `x\n${forged}` }),
      await admin.get(path, { 'X-Tenant': forged, 'X-Request-Id': forged }),
    ];
    for (const answer of answers) await accessOf(answer);
    for (const line of world.logs.slice(before)) {
      expect(line.trimEnd()).not.to.include('\n');
      expect(line).not.to.match(/forged/);
      expect(() => JSON.parse(line)).not.to.throw();
    }
  });

  describe('of a failure', () => {
    const forbidden = (tenant: TestTenant): RegExp =>
      new RegExp(
        `entity_statuses|select|42P01|postgres|node_modules|\\.ts|${tenant.database}|${tenant.slug}|127\\.0\\.0\\.1`,
        'i',
      );

    /** A failing answer says that it failed, and nothing else; the log has the cause under the same id. */
    async function expectFailure(answer: ApiResponse, tenant: TestTenant, status: number, code: string): Promise<Line> {
      expect(answer.status).to.equal(status);
      expect(answer.headers.get('content-type')).to.match(/^application\/problem\+json\b/);
      expect(answer.headers.get('cache-control')).to.equal('no-store');
      expect(answer.body).to.have.all.keys('type', 'title', 'status', 'code', 'traceId');
      expect(answer.body.code).to.equal(code);
      expect(JSON.stringify(answer.body)).not.to.match(forbidden(tenant));
      const access = await accessOf(answer);
      expect(access).to.include({ status, code });
      const causes = linesOf(access.traceId).filter(line => !isAccess(line));
      expect(causes).to.have.length(1);
      expect(causes[0]).to.include({ traceId: answer.body.traceId, level: 50, code });
      expect(causes[0]?.err?.stack).to.match(/^\s+at /m);
      return causes[0] as Line;
    }

    it('in the tenant’s database has its cause under the trace id that the client was told', async () => {
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

    it('of the audit log undoes the change, and has its cause', async () => {
      const broken = await world.provision('unaudited');
      const client = await world.login(broken);
      await sql(broken, `create function break() returns trigger language plpgsql as $$ begin raise 'broken'; end $$`);
      await sql(broken, 'create trigger break before insert on audit_log for each row execute function break()');
      const failed = await client.post(path, { Title: 'Valuable-Value' });
      await expectFailure(failed, broken, 500, 'internal_error');
      expect(await sql(broken, `select 1 from entity_statuses where title = 'Valuable-Value'`)).to.deep.equal([]);
    });

    it('of the control database has its cause', async () => {
      const em = world.control.em.fork();
      await em.execute('alter table sessions rename to misplaced');
      try {
        const answer = await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
          'X-Tenant': world.acme.guid,
        });
        const { err } = await expectFailure(answer, world.acme, 500, 'internal_error');
        expect(err).to.include({ code: '42P01' });
      } finally {
        await em.execute('alter table misplaced rename to sessions');
      }
    });

    it('that stops for lack of a database is told as 503, with when to come again', async () => {
      const gone = await world.provision('gone');
      const client = await world.login(gone);
      await world.control.em
        .fork()
        .execute(`update tenants set database_name = database_name || '_x' where id = ?`, [gone.id]);
      const answer = await eventually(async () => {
        const each = await client.get(path);
        return each.status !== 200 && each;
      });
      expect(Number(answer.headers.get('retry-after'))).to.be.at.least(1);
      const { err } = await expectFailure(answer, gone, 503, 'unavailable');
      expect(err).to.include({ code: '3D000' });
    });
  });

  it('holds no token, no password and no value of a body', async () => {
    const other = await world.login(world.globex);
    const values = ['Valuable-Value', 'valuable.value@acme.test', 'Wrong-Password-1234'];
    await other.post(path, { Title: values[0], Unknown: values[0] });
    await other.post(path, { Title: values[0], Weighting: values[0] });
    const named = { 'X-Tenant': world.globex.guid };
    await world.anonymous.post('/api/v1/auth/login', { email: values[1], password: values[2] }, named);
    const { body } = await world.anonymous.post(
      '/api/v1/auth/refresh',
      { refreshToken: other.tokens?.refreshToken },
      named,
    );
    const last = await other.withToken(`${body.accessToken}x`).get(path);
    await accessOf(last);
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
