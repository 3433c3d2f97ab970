import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { expect } from 'chai';
import { type ApiResponse, Client } from '../support/client.ts';
import { announcedMs, eventually } from '../support/eventually.ts';
import { use } from '../support/use.ts';
import { createWorld, sql, type TestTenant } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
const requests = Number(process.env.ISOLATION_REQUESTS ?? 400);
const tenantConnections = 3;
const canaries = 10;
const seeds = ['Prospect', 'Active', 'Inactive'];

describe('tenant isolation', function () {
  this.timeout(600_000 + requests * 5);

  const world = use(() =>
    createWorld({
      // the reserve for commands, and the control database
      CONNECTION_BUDGET: String(6 + 3 + tenantConnections),
      ACQUIRE_TIMEOUT_MS: '10000',
    }),
  );
  /** acme, globex and four more: two tenants for each connection. */
  let tenants: TestTenant[];
  let clients: Map<TestTenant, Client>;
  let acme: Client;
  let globex: Client;

  before(async () => {
    const more = await Promise.all(
      Array.from({ length: 4 }, (_, i) => world.provision(`tenant-${i}`)),
    );
    tenants = [world.acme, world.globex, ...more];
    clients = new Map();
    for (const tenant of tenants) {
      clients.set(tenant, await world.login(tenant));
      await sql(
        tenant,
        `insert into entity_statuses (title) select $1 || n from generate_series(1, ${canaries}) n`,
        [canary(tenant, '')],
      );
    }
    acme = clientOf(world.acme);
    globex = clientOf(world.globex);
  });

  describe('load', () => {
    it(`${requests} requests of two tenants, 100 at a time, return no row of another tenant`, async () => {
      await readAll([world.acme, world.globex], { requests, parallel: 100 });
    });

    it(`six tenants on ${tenantConnections} connections get every response and only their own rows`, async () => {
      let maxOpen = 0;
      await readAll(tenants, {
        requests: Math.ceil(requests / 2),
        parallel: 60,
        observe: () => {
          const { open } = world.service.databases.budgets.usage;
          maxOpen = Math.max(maxOpen, open);
        },
      });

      expect(maxOpen).to.equal(tenantConnections);
    });

    it('a record posted under load is stored only in the database of the tenant of the token', async () => {
      await inParallel(120, 40, async i => {
        const tenant = pick(tenants, i);
        const other = pick(tenants, i + 1);
        const { status } = await clientOf(tenant).post(
          path,
          { Title: canary(tenant, `posted ${i}`) },
          { 'X-Tenant': other.guid },
        );
        expect(status).to.equal(201);
      });

      for (const tenant of tenants) {
        const rows = await sql<{ title: string; author: string }>(
          tenant,
          `select title, user_guid as author
             from entity_statuses join audit_log on record_key = entity_statuses.id::text
            where title like '%posted%' and resource = 'EntityStatus'`,
        );
        const { body: me } = await clientOf(tenant).get('/api/v1/auth/me');

        expect(rows).to.have.length(120 / tenants.length);
        expect(rows.filter(row => !row.title.startsWith(canary(tenant, '')))).to.deep.equal([]);
        expect(new Set(rows.map(row => row.author))).to.deep.equal(new Set([me.userGuid]));
      }
    });
  });

  describe('token of one tenant, X-Tenant of another', () => {
    const otherTenant = (): Record<string, string> => ({ 'X-Tenant': world.globex.guid });

    it('a read returns records of the tenant of the token, whatever X-Tenant names', async () => {
      const { status, body } = await acme.get(path, otherTenant());
      expect(status).to.equal(200);
      expectOnlyOwn(world.acme, body);
    });

    it('a write changes the database of the tenant of the token, whatever X-Tenant names', async () => {
      const before = await state(world.globex);
      const { status, body } = await acme.post(path, { Title: 'acme alone' }, otherTenant());
      expect(status).to.equal(201);
      expect(
        await sql(world.acme, 'select from entity_statuses where title = $1', ['acme alone']),
      ).to.have.length(1);
      expect((await acme.delete(`${path}/${body.Id}`, otherTenant())).status).to.equal(204);
      expect(await state(world.globex)).to.deep.equal(before);
    });

    it('a refresh token is refused for another tenant, and its session continues', async () => {
      const client = await world.login(world.acme);
      const refreshToken = client.tokens?.refreshToken;

      const refused = await world.anonymous.post(
        '/api/v1/auth/refresh',
        { refreshToken },
        otherTenant(),
      );
      expect(refused.status).to.equal(401);
      expect(refused.body.code).to.equal('invalid_refresh_token');

      expect((await client.get(path)).status).to.equal(200);
      const own = await world.anonymous.post(
        '/api/v1/auth/refresh',
        { refreshToken },
        { 'X-Tenant': world.acme.guid },
      );
      expect(own.status).to.equal(200);
    });
  });

  describe('ids of another tenant', () => {
    let foreign: number;

    before(async () => {
      const { body } = await globex.post(path, { Title: 'globex only' });
      // Far above every id of acme.
      foreign = body.Id + 1_000_000;
      await sql(world.globex, 'update entity_statuses set id = $1 where id = $2', [
        foreign,
        body.Id,
      ]);
    });

    for (const method of ['GET', 'PUT', 'DELETE']) {
      it(`${method} of an id that only another tenant has gets 404 and changes nothing there`, async () => {
        expect((await globex.get(`${path}/${foreign}`)).status).to.equal(200);
        const before = await state(world.globex);

        const { status, body } = await acme.send(
          method,
          `${path}/${foreign}`,
          method === 'PUT' ? { Title: 'taken over' } : undefined,
        );

        expect(status).to.equal(404);
        expect(body.code).to.equal('not_found');
        expect(await state(world.globex)).to.deep.equal(before);
      });
    }

    it('a write changes only the record of its own tenant when two tenants have the id', async () => {
      const before = await state(world.globex);
      const { body } = await acme.put(`${path}/2`, { Title: 'Active at acme' });
      expect(body.Title).to.equal('Active at acme');
      expect(await state(world.globex)).to.deep.equal(before);
      expect((await globex.get(`${path}/2`)).body.Title).to.equal('Active');
      await acme.put(`${path}/2`, { Title: 'Active' });
    });
  });

  it('two tenants may use the same title', async () => {
    for (const client of [acme, globex]) {
      expect((await client.post(path, { Title: 'Shared title' })).status).to.equal(201);
    }
  });

  describe('requests without a token', () => {
    let suspended: TestTenant;
    let deleted: TestTenant;

    before(async () => {
      suspended = pick(tenants, 4);
      deleted = pick(tenants, 5);
      const control = world.control.em.fork();
      await control.execute(`update tenants set status = 'suspended' where id = ?`, [suspended.id]);
      await control.execute(`update tenants set status = 'deleted' where id = ?`, [deleted.id]);
      await eventually(async () => {
        for (const { guid } of [suspended, deleted]) {
          expect((await send([guid])).status).to.equal(403);
        }
        return true;
      }, announcedMs);
    });

    after(async () => {
      const control = world.control.em.fork();
      await control.execute(`update tenants set status = 'active'`);
      await eventually(async () => {
        for (const { guid } of [suspended, deleted]) {
          expect((await send([guid])).status).to.equal(401);
        }
        return true;
      }, announcedMs);
    });

    it('every invalid X-Tenant gets the same 403', async () => {
      const headers: [string, string[]][] = [
        ['missing', []],
        ['empty', ['']],
        ['not a guid', ['abc']],
        ['the nil guid', ['00000000-0000-0000-0000-000000000000']],
        ['an unknown guid', [randomUUID()]],
        ['a suspended tenant', [suspended.guid]],
        ['a deleted tenant', [deleted.guid]],
        ['two tenants', [world.acme.guid, world.globex.guid]],
        ['a tenant twice', [world.acme.guid, world.acme.guid]],
        ['a tenant and more', [`${world.acme.guid},${world.globex.guid}`]],
      ];

      const expected = {
        status: 403,
        type: '/docs/errors#tenant_required',
        title: 'The X-Tenant header must name an active tenant',
        code: 'tenant_required',
      };

      for (const [name, values] of headers) {
        for (const target of [path, '/api/v1/auth/login']) {
          const response = await send(values, target);
          expect(response.status, name).to.equal(403);
          const { traceId, ...body } = response.body;
          expect(traceId, name).to.be.a('string').and.not.empty;
          expect(body, name).to.deep.equal(expected);
          expect(headerNames(response), name).to.deep.equal(headerNames(await send([], target)));
        }
      }
    });

    it('the guid in X-Tenant may be in upper case', async () => {
      const response = await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
        'X-Tenant': world.acme.guid.toUpperCase(),
      });
      expect(response.status).to.equal(200);
      expectOnlyOwn(world.acme, (await new Client(world.url, response.body).get(path)).body);
    });

    it('a request with a valid X-Tenant and no token gets 401', async () => {
      const { status, body, headers } = await world.anonymous.get(path, {
        'X-Tenant': world.acme.guid,
      });
      expect(status).to.equal(401);
      expect(body.code).to.equal('unauthorized');
      expect(headers.get('www-authenticate')).to.equal('Bearer');
    });

    it('a Bearer without a token is no token: 401 with a tenant, and 403 without one', async () => {
      const headers = { Authorization: 'Bearer ' };
      const named = await world.anonymous.get(path, { ...headers, 'X-Tenant': world.acme.guid });
      const unnamed = await world.anonymous.get(path, headers);

      expect(named.body.code).to.equal('unauthorized');
      expect(unnamed.body.code).to.equal('tenant_required');
    });

    it('the password of a user of one tenant does not log in to another tenant', async () => {
      const response = await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
        'X-Tenant': world.globex.guid,
      });
      expect(response.status).to.equal(401);
      expect(response.body.code).to.equal('invalid_credentials');
    });

    it('an unknown path gets 403 without a tenant, 401 without a token, and 404 with a token', async () => {
      const unknown = '/api/v1/Nothing';
      expect((await world.anonymous.get(unknown)).body.code).to.equal('tenant_required');
      expect((await world.anonymous.get(unknown, { 'X-Tenant': world.acme.guid })).status).to.equal(
        401,
      );
      const { status, body } = await acme.get(unknown);
      expect(status).to.equal(404);
      expect(body.code).to.equal('not_found');
    });
  });

  function clientOf(tenant: TestTenant): Client {
    const client = clients.get(tenant);
    if (!client) throw new Error(`no user is logged in to ${tenant.slug}`);
    return client;
  }

  /**
   * Reads the lists of the tenants in turn and checks every row. Three quarters of the requests
   * bypass the response cache, and a third have an X-Tenant of another tenant.
   */
  async function readAll(
    among: TestTenant[],
    {
      requests,
      parallel: width,
      observe,
    }: { requests: number; parallel: number; observe?: () => void },
  ): Promise<void> {
    let completed = 0;
    await inParallel(requests, width, async i => {
      const tenant = pick(among, i);
      const headers: Record<string, string> = {
        ...(i % 3 === 0 ? { 'X-Tenant': pick(among, i + 1).guid } : {}),
        ...(i % 4 === 0 ? {} : { 'Cache-Control': 'no-cache' }),
      };
      const { status, body } = await clientOf(tenant).get(path, headers);
      observe?.();
      expect(status, JSON.stringify(body)).to.equal(200);
      expectOnlyOwn(tenant, body);
      completed++;
    });
    expect(completed).to.equal(requests);
  }

  /** Sends a request with one X-Tenant header for each value. */
  function send(
    xTenant: string[],
    target = path,
  ): Promise<Pick<ApiResponse, 'status' | 'headers' | 'body'>> {
    const login = target.endsWith('/login');

    return new Promise((resolve, reject) => {
      const outgoing = request(
        `${world.url}${target}`,
        {
          method: login ? 'POST' : 'GET',
          agent: false,
          headers: {
            ...(xTenant.length > 0 ? { 'X-Tenant': xTenant } : {}),
            ...(login ? { 'Content-Type': 'application/json' } : {}),
          },
        },
        async response => {
          let text = '';
          for await (const chunk of response.setEncoding('utf8')) text += chunk;

          const headers = new Headers(
            Object.entries(response.headers).map(([name, value]) => [name, String(value)]),
          );
          resolve({ status: response.statusCode ?? 0, headers, body: JSON.parse(text) });
        },
      );

      outgoing.on('error', reject);
      outgoing.end(login ? JSON.stringify(world.acme.admin) : undefined);
    });
  }
});

function canary(tenant: TestTenant, name: string): string {
  return `canary of ${tenant.guid} ${name}`;
}

/** Expects every canary row of the tenant, and none of another tenant. */
function expectOnlyOwn(tenant: TestTenant, body: { Title: string }[]): void {
  const found = body.filter(({ Title }) => Title.startsWith('canary of '));
  const own = found.filter(({ Title }) => Title.startsWith(canary(tenant, '')));
  if (own.length !== found.length || own.length < canaries) {
    throw new Error(
      `${tenant.slug} got ${found.length - own.length} foreign rows and ${own.length} of its own`,
    );
  }
  if (!seeds.every(seed => body.some(({ Title }) => Title === seed))) {
    throw new Error('the seed rows are missing');
  }
}

/** Returns everything that a request could have changed in a tenant's database. */
function state(tenant: TestTenant): Promise<object[]> {
  return sql(
    tenant,
    `select (select count(*) from audit_log) as entries,
            (select json_agg(s order by id) from entity_statuses s) as statuses`,
  );
}

function headerNames({ headers }: Pick<ApiResponse, 'headers'>): string[] {
  return [...headers.keys()].sort();
}

function pick<T>(items: readonly T[], i: number): T {
  return items[i % items.length] as T;
}

/** Runs `work` for 0 … count − 1, at most `width` at a time. */
async function inParallel(
  count: number,
  width: number,
  work: (i: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: width }, async () => {
      while (next < count) await work(next++);
    }),
  );
}
