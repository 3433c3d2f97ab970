import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  type BackOffice,
  createBackOffice,
  type ListQuery,
  ProblemError,
  type Tokens,
} from '../../clients/typescript/src/back-office.ts';
import { accessTokenLifetimeSeconds } from '../../src/control/token-lifetime.ts';
import { factorWorld } from '../accounts/auth/factors/factor-world.ts';
import { storeKey, storeProgram } from '../accounts/programs/stored-programs.ts';
import { startProgram } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { settle } from '../support/settle.ts';
import { controlSql, type TestTenant, useWorld } from '../support/world.ts';
import { clientSource, compileProgram, withBuiltClient } from './built-client.ts';

const countries = '/api/v1/Countries';
type Send = (request: Request) => Promise<Response>;

describe('TypeScript client', () => {
  const world = useWorld();
  /** Requests that reached the service, as method and path. */
  let sent: string[] = [];

  before(async () => {
    const acme = await clientOf(world.acme);
    await acme.POST(countries, { body: { CountryCode: 'A', CountryName: 'Only in acme' } });
    const globex = await clientOf(world.globex);
    await globex.POST(countries, { body: { CountryCode: 'G', CountryName: 'Only in globex' } });
  });
  beforeEach(() => {
    sent = [];
  });

  const count: Send = request => {
    sent.push(`${request.method} ${new URL(request.url).pathname}`);
    return fetch(request);
  };
  const timesSent = (line: string): number => sent.filter(each => each === line).length;

  async function clientOf(
    tenant: TestTenant,
    options: { fetch?: Send; stored?: (Tokens | undefined)[] } = {},
  ) {
    const client = createBackOffice({
      url: world.url,
      tenant: tenant.guid,
      fetch: options.fetch ?? count,
      onTokens: tokens => void options.stored?.push(tokens),
    });
    await client.login(tenant.admin.email, tenant.admin.password);
    return client;
  }

  /** Adds a program with the role `Administrator`, and returns a key of it. */
  async function addKey(tenant: TestTenant): Promise<{ key: string; id: string }> {
    const { id } = await storeProgram(world, tenant);
    await controlSql(
      world,
      `update users set role_id = (select r.id from roles r where r.tenant_id = users.tenant_id and r.name = 'Administrator')
        where id = ?`,
      [id],
    );
    return storeKey(world, tenant, id, { endsAt: '2100-01-01' });
  }

  it('forty parallel requests with an expired access token share one refresh, and all succeed', async () => {
    const stored: (Tokens | undefined)[] = [];
    const client = await clientOf(world.acme, { stored });
    const name = { CountryCode: 'P', CountryName: 'Parallel' };
    world.clock.offsetSeconds += accessTokenLifetimeSeconds + 60;
    const reads = Array.from({ length: 39 }, () => client.GET('/api/v1/auth/me'));
    const [created, ...me] = await Promise.all([client.POST(countries, { body: name }), ...reads]);
    expect(created.data?.CountryName).to.equal('Parallel');
    expect(me.map(({ data }) => data?.tenantGuid)).to.deep.equal(Array(39).fill(world.acme.guid));
    expect(timesSent('POST /api/v1/auth/refresh')).to.equal(1);
    expect(stored).to.have.length(2);

    const restarted = createBackOffice({
      url: world.url,
      tenant: world.acme.guid,
      tokens: stored[1],
    });
    expect((await restarted.GET('/api/v1/auth/me')).data?.role).to.equal('Administrator');
  });

  it('after the end of a session, requests get 401 and the tokens are forgotten after one refused refresh', async () => {
    const stored: (Tokens | undefined)[] = [];
    const client = await clientOf(world.acme, { stored });
    await controlSql(world, 'update sessions set revoked_at = now()');
    world.clock.offsetSeconds += accessTokenLifetimeSeconds + 60;

    const results = await Promise.all([1, 2, 3].map(() => client.GET(countries)));
    expect(results.map(({ response }) => response.status)).to.deep.equal([401, 401, 401]);
    expect(timesSent('POST /api/v1/auth/refresh')).to.equal(1);
    expect(stored.at(-1)).to.equal(undefined);

    await client.login(world.acme.admin.email, world.acme.admin.password);
    expect((await client.GET(countries)).response.status).to.equal(200);
  });

  it('a POST whose response is lost twice is repeated with the same key, and makes one record', async () => {
    let lost = 0;
    const client = await clientOf(world.acme, {
      fetch: async request => {
        const response = await count(request);
        if (request.method !== 'POST' || request.url.includes('/auth/') || lost === 2) {
          return response;
        }
        lost++;
        throw new TypeError('the connection was reset');
      },
    });

    const body = { CountryCode: 'LOST', CountryName: 'Lost response' };
    const { data, response } = await client.POST(countries, { body });

    expect(data?.CountryCode).to.equal('LOST');
    expect(response.headers.get('Idempotency-Replayed')).to.equal('true');
    expect(timesSent(`POST ${countries}`)).to.equal(3);

    expect((await client.POST(countries, { body })).error?.code, 'another request').to.equal(
      'duplicate',
    );
  });

  it('a read that gets 503 is repeated after Retry-After, unless that exceeds the longest wait; a PUT is not repeated', async () => {
    let refused = 0;
    const refuse = (seconds: number): Send => {
      const send: Send = async request => {
        if (request.url.includes('/auth/') || refused > 0) return count(request);
        refused++;
        return new Response(null, { status: 503, headers: { 'Retry-After': String(seconds) } });
      };
      return send;
    };

    const client = await clientOf(world.acme, { fetch: refuse(1) });
    const startedAt = performance.now();
    expect((await client.GET(countries)).response.status).to.equal(200);
    expect(performance.now() - startedAt).to.be.at.least(990);

    refused = 0;
    const put = await client.PUT(countries, { body: { CountryCode: 'P', CountryName: 'Changed' } });
    expect(put.response.status).to.equal(503);
    expect(refused).to.equal(1);

    refused = 0;
    const patient = await clientOf(world.acme, { fetch: refuse(31) });
    expect((await patient.GET(countries)).response.status).to.equal(503);
  });

  it('all yields every record of its tenant once, in the order of the sort, whatever the size of a page', async () => {
    const client = await clientOf(world.acme);
    for (let n = 0; n < 5; n++) {
      await client.POST('/api/v1/Entities', {
        body: { Name: `Entity ${n}`, EntityType: 'customer' },
      });
    }

    const names: string[] = [];
    sent = [];
    for await (const { Name } of client.all('/api/v1/Entities', { sort: ['-Name'], limit: 2 })) {
      names.push(Name);
    }
    expect(names).to.deep.equal(['Entity 4', 'Entity 3', 'Entity 2', 'Entity 1', 'Entity 0']);
    expect(timesSent('GET /api/v1/Entities')).to.equal(3);

    for (const CountryCode of ['EACH', 'ONCE']) {
      await client.POST(countries, { body: { CountryCode, CountryName: 'Of a page' } });
    }
    const { data: listed = [] } = await client.GET(countries);
    const codes: string[] = [];
    for await (const { CountryCode } of client.all(countries, { limit: 1 })) {
      codes.push(CountryCode);
    }
    expect(codes).to.include.members(['EACH', 'ONCE']).and.not.include('G');
    expect(codes.sort()).to.deep.equal(listed.map(({ CountryCode }) => CountryCode).sort());

    for await (const _ of client.all('/api/v1/Promotions')) {
      throw new Error('the list has no records');
    }
  });

  it('followChanges goes on after lost streams and an expired token, and changes yields the same', async () => {
    const cuts: AbortController[] = [];
    const cuttable: Send = request => {
      if (!request.url.includes('/stream')) return fetch(request);
      const cut = new AbortController();
      cuts.push(cut);
      return fetch(request, { signal: cut.signal });
    };
    const client = await clientOf(world.acme, { fetch: cuttable });

    await settle(world.acme);
    const { response } = await client.GET('/api/v1/Changes', {
      params: { query: { after: 'now' } },
    });
    const after = response.headers.get('Next-Cursor') ?? '';

    const stop = new AbortController();
    const followed = client.followChanges(
      { after, resource: 'OrderStatus', include: 'record' },
      stop.signal,
    );

    const names: unknown[] = [];
    for (const Name of ['one', 'two', 'three']) {
      await client.POST('/api/v1/OrderStatuses', { body: { Name } });
      names.push((await followed.next()).value?.Record?.Name);
      if (Name === 'one') cuts.at(-1)?.abort(new TypeError('the connection was lost'));
      else world.clock.offsetSeconds += accessTokenLifetimeSeconds + 60;
    }
    expect(names).to.deep.equal(['one', 'two', 'three']);

    const read: unknown[] = [];
    for await (const { Record } of client.changes({
      after,
      resource: 'OrderStatus',
      include: 'record',
    })) {
      read.push(Record?.Name);
    }
    expect(read).to.deep.equal(names);

    stop.abort();
    await followed.return();
  });

  it('a call sends lists, filters, texts and headers as the service reads them, and returns CSV as a text or a stream', async () => {
    const client = await clientOf(world.globex);
    const csv = 'CountryCode,CountryName\nÖ/1,"Ö & Ü"\nÖ2,Ö?\n';

    const imported = await client.POST('/api/v1/Imports', {
      params: { query: { resource: 'Country' }, header: { 'Idempotency-Key': 'calls' } },
      body: csv,
      headers: { 'Content-Type': 'text/csv' },
    });
    const filter = { CountryCode: 'Ö/1' };
    const found = await client.GET(countries, {
      params: { query: { filter, sort: ['-CountryCode', 'CountryName'], limit: 5 } },
    });
    const one = await client.GET('/api/v1/Countries/code/{code}', {
      params: { path: { code: 'Ö/1' } },
    });
    const options = { params: { query: { filter } }, headers: { Accept: 'text/csv' } };
    const text = await client.GET(countries, { ...options, parseAs: 'text' });
    const stream = await client.GET(countries, { ...options, parseAs: 'stream' });

    expect(imported.data?.Created).to.equal(2);
    expect(found.data?.map(({ CountryName }) => CountryName)).to.deep.equal(['Ö & Ü']);
    expect(one.data?.CountryName).to.equal('Ö & Ü');
    expect(text.data).to.match(/^CountryCode,.*\r\nÖ\/1,Ö & Ü,/);
    expect(await new Response(stream.data).text()).to.equal(text.data);
  });

  it('a response that is no success and has no problem is an error with its status, and one without a body has no data', async () => {
    const answers: Response[] = [];
    const client = await clientOf(world.acme, {
      fetch: request =>
        request.url.includes('/auth/')
          ? count(request)
          : Promise.resolve(answers.shift() as Response),
    });

    answers.push(
      new Response('<h1>Too large</h1>', { status: 413, headers: { 'Content-Type': 'text/html' } }),
    );
    const refused = await client.GET(countries);
    answers.push(new Response(null, { status: 404 }));
    const empty = await client.GET(countries);
    answers.push(
      new Response('{"code":', {
        status: 400,
        headers: { 'Content-Type': 'application/problem+json' },
      }),
    );
    const cut = await client.GET(countries);
    answers.push(new Response(null, { status: 304 }));
    const same = await client.GET(countries);

    expect(refused.error).to.deep.equal({ status: 413, title: 'Status 413' });
    expect(empty.error?.status).to.equal(404);
    expect(cut.error?.status).to.equal(400);
    expect(same).to.include({ data: undefined });
    expect(same.error).to.equal(undefined);
  });

  it('null in a filter finds the records without a value, undefined leaves the filter out', async () => {
    const client = await clientOf(world.globex);
    const currency = { Code: 'NUL', Name: 'Null', Symbol: 'N' };
    const { data: euro } = await client.POST('/api/v1/Currency', { body: currency });
    for (const [Name, CurrencyId] of [
      ['with', euro?.Id ?? 0],
      ['without', null],
    ] as const) {
      await client.POST('/api/v1/Entities', {
        body: { Name, EntityType: 'customer', CurrencyId },
      });
    }
    const namesOf = async (filter: { CurrencyId?: null | undefined }): Promise<string[]> => {
      const names: string[] = [];
      for await (const { Name } of client.all('/api/v1/Entities', { sort: ['Name'], filter })) {
        names.push(Name);
      }
      return names;
    };

    const query = { filter: { CurrencyId: null }, sort: ['Name' as const] };
    const page = await client.GET('/api/v1/Entities', { params: { query } });

    expect(await namesOf({ CurrencyId: null })).to.deep.equal(['without']);
    expect(await namesOf({ CurrencyId: undefined })).to.deep.equal(['with', 'without']);
    expect(page.data?.map(({ Name }) => Name)).to.deep.equal(['without']);
  });

  it('a filter that no value can meet throws before a request, in place of finding all records', async () => {
    const client = await clientOf(world.acme);
    const filters = [
      { Id: [] },
      { Id: new Set() },
      { Id: [1, undefined] },
      { Code: ['EUR', null] },
      { Rate: { gte: null } },
      { Rate: { gte: [] } },
    ];
    sent = [];

    for (const filter of filters) {
      const query = { filter } as object;
      const read = client.GET('/api/v1/TaxCodes', { params: { query } });
      expect(await read.catch(error => error)).to.be.instanceOf(RangeError);
      const all = client.all('/api/v1/TaxCodes', query).next();
      expect(await all.catch(error => error)).to.be.instanceOf(RangeError);
    }

    expect(sent).to.deep.equal([]);
  });

  it('a time in a filter may be a Date', async () => {
    const client = await clientOf(world.acme);
    const query = { 'filter[CreatedAt]': { gt: new Date(Date.now() + 3_600_000) }, q: '' };

    const later = await client.GET('/api/v1/Entities', { params: { query } });

    expect(later.data).to.deep.equal([]);
  });

  // Half of this test is that it compiles: each query has its type, without a type assertion.
  it('the operators of a field stand in the filter or beside it, with the types of their values', async () => {
    const client = await clientOf(world.globex);
    for (const [Code, Rate] of [
      ['LOW', 5],
      ['MID', 12.5],
      ['TOP', 25],
    ] as const) {
      await client.POST('/api/v1/TaxCodes', { body: { Code, Name: `${Code} rate`, Rate } });
    }
    const codesOf = async (query: ListQuery<'/api/v1/TaxCodes'>): Promise<string[]> => {
      const read = await client.GET('/api/v1/TaxCodes', { params: { query } });
      const all = await Array.fromAsync(client.all('/api/v1/TaxCodes', query));
      expect(read.data).to.deep.equal(all);
      return all.map(({ Code }) => Code);
    };

    const tomorrow = new Date(Date.now() + 86_400_000);
    const sort = ['Code'] as ['Code'];
    expect(await codesOf({ sort, filter: { Rate: { gte: 10, lt: 25 } } })).to.deep.equal(['MID']);
    expect(
      await codesOf({ sort, filter: { Code: ['LOW', 'TOP'], Name: { prefix: 'top' } } }),
    ).to.deep.equal(['TOP']);
    expect(
      await codesOf({ sort, filter: { Code: new Set(['LOW', 'MID']) }, 'filter[Rate]': { gt: 5 } }),
    ).to.deep.equal(['MID']);
    expect(await codesOf({ sort, filter: { CreatedAt: { gt: tomorrow } } })).to.deep.equal([]);
    expect(await codesOf({ sort, filter: { CreatedAt: tomorrow } })).to.deep.equal([]);
  });

  it('the types of a query refuse the conditions that the service refuses', () => {
    // Never called. The compiler reports an unused @ts-expect-error.
    const mistakes = (): ListQuery<'/api/v1/Entities'>[] => [
      // @ts-expect-error a field without such an operator
      { filter: { Id: { prefix: 'a' } } },
      // @ts-expect-error no operator of a choice
      { filter: { EntityType: { gte: 'customer' } } },
      // @ts-expect-error equality has no operator name
      { filter: { Name: { equal: 'a' } } },
      // @ts-expect-error a name is not a time
      { filter: { Name: new Date() } },
      // @ts-expect-error a name is not a number
      { filter: { Name: { prefix: 1 } } },
      // @ts-expect-error each entity has a name
      { filter: { Name: null } },
      // @ts-expect-error not an entity type
      { filter: { EntityType: ['partner'] } },
      // @ts-expect-error no such field
      { filter: { Nothing: { gte: 1 } } },
      // @ts-expect-error a field without such an operator
      { 'filter[Id]': { prefix: 'a' } },
    ];

    expect(mistakes).to.be.a('function');
  });

  it('an error has a sentence for a person, and the seconds to wait', async () => {
    let isLimited = false;
    const client = await clientOf(world.acme, {
      fetch: request => {
        if (!isLimited) return count(request);
        const body = { code: 'rate_limited', title: 'Too many requests', status: 429 };
        const headers = { 'Content-Type': 'application/problem+json', 'Retry-After': '720' };
        return Promise.resolve(new Response(JSON.stringify(body), { status: 429, headers }));
      },
    });
    isLimited = true;

    const { error } = await client.GET(countries);
    const thrown = await client
      .all(countries)
      .next()
      .catch(each => each);

    expect(error?.retryAfter).to.equal(720);
    expect(thrown).to.be.instanceOf(ProblemError);
    expect(thrown.retryAfter).to.equal(720);
    expect(thrown.message).to.equal('Too many requests');
  });

  it('requests that were limited together come back over a second or more', async () => {
    const at: number[] = [];
    const limited = new Set<string>();
    const client = await clientOf(world.acme, {
      fetch: request => {
        const { searchParams } = new URL(request.url);
        const name = searchParams.get('q') ?? '';
        if (name === '' || limited.has(name)) {
          at.push(performance.now());
          return count(request);
        }
        limited.add(name);
        const headers = { 'Retry-After': '1' };
        return Promise.resolve(new Response(null, { status: 429, headers }));
      },
    });
    at.length = 0;

    await Promise.all(
      Array.from({ length: 40 }, (_, index) =>
        client.GET(countries, { params: { query: { q: `limited ${index}` } } }),
      ),
    );

    expect(Math.max(...at) - Math.min(...at)).to.be.above(500);
  });

  it('hasSession is true from login to logout, and costs no request', async () => {
    const client = await clientOf(world.acme);
    sent = [];
    expect(client.hasSession).to.equal(true);
    expect(sent).to.deep.equal([]);

    await client.logout();

    expect(client.hasSession).to.equal(false);
    const stranger = createBackOffice({ url: world.url, tenant: world.acme.guid, fetch: count });
    expect(stranger.hasSession).to.equal(false);
    expect(timesSent('GET /api/v1/auth/me')).to.equal(0);
  });

  it('all and login throw a ProblemError with the code of the service', async () => {
    const client = await clientOf(world.acme);
    const wrong = await client
      .login(world.acme.admin.email, 'wrong password')
      .catch(error => error);
    expect(wrong).to.be.instanceOf(ProblemError);
    expect(wrong.status).to.equal(401);
    expect(wrong.problem.code).to.equal('invalid_credentials');
    const unsorted: unknown = await all(client).catch(error => error.problem.code);
    expect(unsorted).to.equal('validation_failed');
  });

  it('a login that needs a second factor is completed by a code, also with the example of the README', async () => {
    const people = factorWorld(world);
    const { person, client: phone } = await people.add(world.acme);
    const { secret } = await people.addTotp(phone);
    const client = createBackOffice({ url: world.url, tenant: world.acme.guid });

    const refused = await client.login(person.email, person.password).catch(error => error);
    expect(refused).to.be.instanceOf(ProblemError);
    expect(refused.problem.code).to.equal('second_factor_required');
    expect(client.hasSession).to.equal(false);
    const { challenge } = refused.problem;
    const wrong = await client.verifyLogin(challenge, { code: '000000' }).catch(error => error);
    expect(wrong.problem.code).to.equal('invalid_code');
    await client.verifyLogin(challenge, { code: people.code(secret) });
    expect(client.hasSession).to.equal(true);
    expect((await client.GET('/api/v1/auth/me')).response.status).to.equal(200);

    people.passCode();
    await withBuiltClient(async folder => {
      const readme = await readFile(join(clientSource, 'README.md'), 'utf8');
      const [, , , [, example = ''] = []] = [...readme.matchAll(/```(?:ts)?\n(.*?)```/gs)];
      const file = await compileProgram(folder, example);
      const printed = await run(process.execPath, [file], {
        URL_OF_SERVICE: world.url,
        TENANT: world.acme.guid,
        EMAIL: person.email,
        PASSWORD: person.password,
        CODE: people.code(secret),
      });
      expect(printed).to.match(/^[0-9a-f-]{36}\n$/);
    });
  });

  // A drill compiles every example of the reference with it.
  it('the example of the README runs with the built package', () =>
    withBuiltClient(async folder => {
      const readme = await readFile(join(clientSource, 'README.md'), 'utf8');
      const [, example = ''] = /```ts\n(.*?)```/s.exec(readme) ?? [];
      expect(example.trim().split('\n').length).to.be.within(10, 30);
      const file = await compileProgram(folder, example);
      const { email, password } = world.acme.admin;
      const { POST } = await clientOf(world.acme);
      await POST(countries, { body: { CountryCode: 'RM', CountryName: 'Read me' } });
      const environment = {
        URL_OF_SERVICE: world.url,
        TENANT: world.acme.guid,
        EMAIL: email,
        PASSWORD: password,
      };
      const printed = await run(process.execPath, [file], environment);
      expect(printed).to.match(/^RM Read me\n.*^XY\nexists already \{.*\}\n$/ms);
    }));

  it('the example of the README with a key runs with the built package', () =>
    withBuiltClient(async folder => {
      const readme = await readFile(join(clientSource, 'README.md'), 'utf8');
      const [, , [, example = ''] = []] = [...readme.matchAll(/```(?:ts)?\n(.*?)```/gs)];
      const file = await compileProgram(folder, example);
      const { POST } = await clientOf(world.acme);
      await POST(countries, { body: { CountryCode: 'RK', CountryName: 'Read by key' } });
      const { key } = await addKey(world.acme);

      const printed = await run(process.execPath, [file], { URL_OF_SERVICE: world.url, KEY: key });

      expect(printed).to.include('RK Read by key\n');
    }));

  it('a program reads, writes and follows changes with its key, of the tenant of the key, without a login or a refresh', async () => {
    const { key } = await addKey(world.globex);
    const client = createBackOffice({ url: world.url, key, fetch: count });
    expect(client.hasSession).to.equal(true);

    await settle(world.globex);
    const followed = client.followChanges({ resource: 'Country' })[Symbol.asyncIterator]();
    const next = followed.next();
    await eventually(() => sent.some(line => line.includes('/Changes/stream')));
    const body = { CountryCode: 'KEY', CountryName: 'By key' };
    const created = await client.POST(countries, { body });
    expect(created.data?.CountryName).to.equal('By key');

    const codes: string[] = [];
    for await (const { CountryCode } of client.all(countries)) codes.push(CountryCode);
    expect(codes).to.include.members(['G', 'KEY']).and.not.include('A');
    expect((await next).value).to.deep.include({ Resource: 'Country', Action: 'create' });
    await followed.return?.(undefined);

    world.clock.offsetSeconds += accessTokenLifetimeSeconds + 60;
    const me = await client.GET('/api/v1/auth/me');
    expect(me.data?.tenantGuid).to.equal(world.globex.guid);
    expect(sent.filter(line => /login|refresh/.test(line))).to.deep.equal([]);
  });

  it('a key that is revoked gets 401, and the client neither refreshes nor logs in with it', async () => {
    const { key, id } = await addKey(world.acme);
    const client = createBackOffice({ url: world.url, key, fetch: count });
    expect((await client.GET(countries)).response.status).to.equal(200);
    await controlSql(world, 'update program_keys set revoked_at = now() where id = ?', [id]);

    const refused = await eventually(async () => {
      const result = await client.GET(countries);
      return result.response.status === 401 && result;
    });
    expect(refused.error?.code).to.equal('invalid_token');

    for (const call of [() => client.login('a@example.com', 'password'), () => client.logout()]) {
      const error = await call().then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect(error)
        .to.be.instanceOf(Error)
        .and.have.property('message')
        .that.includes('with a key');
      expect(String(error)).to.not.include(key);
    }
    expect(sent.filter(line => /auth/.test(line))).to.deep.equal([]);
  });

  it('a client needs a tenant or a key, and takes no tokens beside a key', () => {
    const nothing = { url: world.url } as { url: string; tenant: string };
    expect(() => createBackOffice(nothing)).to.throw('Name the tenant, or pass a key.');

    // @ts-expect-error a key has no tokens, and the type says so
    createBackOffice({ url: world.url, key: 'sbk_…', storage: () => sessionStorage });
  });
});

/** Reads a list that the service refuses to sort so. */
async function all(client: BackOffice): Promise<void> {
  const sort = ['Nothing'] as unknown as ['Title'];
  for await (const _ of client.all('/api/v1/EntityStatus', { sort })) {
    throw new Error('not refused');
  }
}

/**
 * Runs a program that must succeed.
 * @returns what it printed
 */
async function run(
  program: string,
  args: string[],
  environment: Record<string, string>,
): Promise<string> {
  const { ended } = startProgram(program, args, environment);
  const { code, stdout, stderr } = await ended;
  expect({ code, stderr }, stdout).to.deep.equal({ code: 0, stderr: '' });
  return stdout;
}
