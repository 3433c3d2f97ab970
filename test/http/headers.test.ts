import { once } from 'node:events';
import { connect } from 'node:net';
import { expect } from 'chai';
import type { ApiResponse, Client } from '../support/client.ts';
import { type RawResult, rawRequest, sendRaw } from '../support/raw-http.ts';
import { createWorld, type World } from '../support/world.ts';

const statuses = '/api/v1/EntityStatus';
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

function expectProblem(answer: ApiResponse, status: number, code: string): void {
  expect(answer.status).to.equal(status);
  expect(answer.headers.get('content-type')).to.match(/^application\/problem\+json\b/);
  expect(answer.headers.get('cache-control')).to.equal('no-store');
  expect(answer.body).to.include({ status, code, type: `/docs/errors#${code}` });
  expect(answer.body.title).to.be.a('string').and.not.equal('');
  expect(answer.body.traceId).to.match(uuid).and.equal(answer.headers.get('x-request-id'));
}

/** The client of the harness would parse the body that is not there. */
function askHead(path: string, { url, tokens }: Client, headers: Record<string, string> = {}): Promise<Response> {
  const bearer = tokens ? { Authorization: `Bearer ${tokens.accessToken}` } : {};
  return fetch(`${url}${path}`, { method: 'HEAD', headers: { ...bearer, ...headers } as Record<string, string> });
}

describe('HTTP', () => {
  let world: World;
  let admin: Client;
  let authorization: string;

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
    authorization = `Authorization: Bearer ${admin.tokens?.accessToken}`;
  });
  after(() => world.close());
  afterEach('the service goes on', async () => {
    expect((await admin.get(statuses)).status).to.equal(200);
  });

  describe('framing', () => {
    const chunked = '0\r\n\r\n';
    const smuggled: Record<string, string> = {
      'Content-Length with Transfer-Encoding': rawRequest(
        `POST ${statuses}`,
        ['Content-Length: 6', 'Transfer-Encoding: chunked'],
        `${chunked}G`,
      ),
      'two Content-Length': rawRequest(`POST ${statuses}`, ['Content-Length: 0', 'Content-Length: 5'], 'GET /'),
      'a Content-Length list': rawRequest(`POST ${statuses}`, ['Content-Length: 0, 5'], 'GET /'),
      'a Content-Length with a sign': rawRequest(`POST ${statuses}`, ['Content-Length: +5'], 'GET /'),
      'an obfuscated chunked': rawRequest(`POST ${statuses}`, ['Transfer-Encoding: xchunked'], chunked),
      'chunked before another coding': rawRequest(
        `POST ${statuses}`,
        ['Transfer-Encoding: chunked, identity'],
        chunked,
      ),
      'a folded Transfer-Encoding': rawRequest(`POST ${statuses}`, ['Transfer-Encoding:\r\n chunked'], chunked),
      'a space before the colon': rawRequest(`POST ${statuses}`, ['Transfer-Encoding : chunked'], chunked),
      'line feeds alone': `GET ${statuses} HTTP/1.1\nHost: backoffice.test\n\n`,
      'a carriage return inside a header': rawRequest(`GET ${statuses}`, ['X-A: b\rContent-Length: 5']),
      'no Host': `GET ${statuses} HTTP/1.1\r\n\r\n`,
      'another protocol': 'SSH-2.0-OpenSSH_9.9\r\n\r\n',
    };
    for (const [name, bytes] of Object.entries(smuggled)) {
      it(`refuses ${name} and ends the connection`, async () => {
        const second = rawRequest(`GET ${statuses}`, [authorization]);
        const { statuses: answers, closed } = await sendRaw(world.url, [bytes, second]);
        expect(answers).to.deep.equal([400]);
        expect(closed).to.equal(true);
      });
    }

    it('a chunk with an invalid size is rejected, and no bytes after it are read as a request', async () => {
      const head = rawRequest(`POST ${statuses}`, [
        authorization,
        'Content-Type: application/json',
        'Transfer-Encoding: chunked',
      ]);
      const { statuses: answers, closed } = await sendRaw(world.url, [
        `${head}zz\r\n`,
        rawRequest(`GET ${statuses}`, [authorization]),
      ]);
      expect(answers).to.deep.equal([400]);
      expect(closed).to.equal(true);
    });

    it('refuses headers of more than 16 KiB with 431', async () => {
      const { statuses: answers, closed } = await sendRaw(
        world.url,
        rawRequest(`GET ${statuses}`, [authorization, `X-Long: ${'x'.repeat(17_000)}`]),
      );
      expect(answers).to.deep.equal([431]);
      expect(closed).to.equal(true);
    });

    it('refuses 200 headers instead of leaving some of them out', async () => {
      const many = Array.from({ length: 200 }, (_, number) => `X-${number}: 1`);
      const { statuses: answers, closed } = await sendRaw(
        world.url,
        rawRequest(`GET ${statuses}`, [...many, authorization]),
      );
      expect(answers).to.deep.equal([431]);
      expect(closed).to.equal(true);
    });

    it('a client that sends Expect: 100-continue for 1 GB gets a response without sending the body', async () => {
      const { statuses: answers, closed } = await sendRaw(
        world.url,
        rawRequest(`POST ${statuses}`, [
          authorization,
          'Content-Type: application/json',
          'Content-Length: 1073741824',
          'Expect: 100-continue',
        ]),
      );
      expect(answers).to.deep.equal([413]);
      expect(closed).to.equal(true);
    });

    it('a client that sends Expect: 100-continue may send a body within the limit', async () => {
      const body = '{"Title":"Asked first"}';
      const { text, statuses: answers } = await sendRaw(
        world.url,
        [
          rawRequest(`POST ${statuses}`, [
            authorization,
            'Content-Type: application/json',
            `Content-Length: ${body.length}`,
            'Expect: 100-continue',
          ]),
          body,
        ],
        { until: /Asked first/ },
      );
      expect(answers).to.deep.equal([100, 201]);
      expect(text).to.match(/"Title":"Asked first"/);
    });

    it('ends the connection after a body that is too large, so that nothing in it is taken for a request', async () => {
      const inner = rawRequest(`DELETE ${statuses}/1`, [authorization]);
      const head = rawRequest(`POST ${statuses}`, [
        authorization,
        'Content-Type: application/json',
        'Content-Length: 70000',
      ]);
      const {
        text,
        statuses: answers,
        closed,
      } = await sendRaw(world.url, [head, inner.padEnd(70_000), rawRequest(`GET ${statuses}`, [authorization])]);
      // The end of the connection may overtake the answer, because the body was not read.
      expect([[], [413]]).to.deep.include(answers);
      if (answers.length > 0) expect(text).to.match(/^Connection: close\r$/im);
      expect(closed).to.equal(true);
      expect((await admin.get(`${statuses}/1`)).status).to.equal(200);
    });

    it('ends the connection after a body of another type, so that nothing in it is taken for a request', async () => {
      const inner = rawRequest(`DELETE ${statuses}/1`, [authorization]);
      const {
        text,
        statuses: answers,
        closed,
      } = await sendRaw(
        world.url,
        rawRequest(
          `POST ${statuses}`,
          [authorization, 'Content-Type: text/plain', `Content-Length: ${inner.length}`],
          inner,
        ),
      );
      expect(answers).to.deep.equal([415]);
      expect(text).to.match(/^Connection: close\r$/im);
      expect(closed).to.equal(true);
      expect((await admin.get(`${statuses}/1`)).status).to.equal(200);
    });

    it('never takes the body of a request that was refused for the next request', async () => {
      const inner = rawRequest(`GET ${statuses}/1`, [authorization]);
      const { statuses: answers, text } = await sendRaw(world.url, [
        // No token: refused before its body is read.
        rawRequest(`POST ${statuses}`, [`X-Tenant: ${world.acme.guid}`, `Content-Length: ${inner.length}`], inner),
        rawRequest(`GET ${statuses}/2`, [authorization, 'Connection: close']),
      ]);
      expect(answers).to.deep.equal([401, 200]);
      expect(text)
        .to.match(/"Id":2/)
        .and.not.match(/"Id":1/);
    });

    it('answers requests sent at once on one connection in their order', async () => {
      const { statuses: answers, text } = await sendRaw(world.url, [
        rawRequest(`GET ${statuses}/1`, [authorization]) +
          rawRequest(`GET ${statuses}/999`, [authorization]) +
          rawRequest(`GET ${statuses}/2`, [authorization, 'Connection: close']),
      ]);
      expect(answers).to.deep.equal([200, 404, 200]);
      expect(text.indexOf('"Id":1')).to.be.lessThan(text.indexOf('"Id":2'));
    });
  });

  describe('methods', () => {
    it('TRACE gets 501, CONNECT ends the connection, and an unknown method gets 400', async () => {
      const ask = (method: string) =>
        sendRaw(world.url, rawRequest(`${method} ${statuses}`, [authorization, 'Connection: close']));
      expect((await ask('TRACE')).statuses).to.deep.equal([501]);
      expect(await ask('CONNECT')).to.deep.include({ statuses: [], closed: true });
      expect((await ask('FOO')).statuses).to.deep.equal([400]);
      expect((await ask('get')).statuses).to.deep.equal([400]);
    });

    it('a 405 names the methods of the path', async () => {
      const patched = await admin.send('PATCH', statuses, { Title: 'x' });
      expectProblem(patched, 405, 'method_not_allowed');
      expect(patched.headers.get('allow')?.split(', ').sort()).to.deep.equal(['GET', 'HEAD', 'POST']);
      const posted = await admin.post(`${statuses}/1`, { Title: 'x' });
      expectProblem(posted, 405, 'method_not_allowed');
      expect(posted.headers.get('allow')?.split(', ').sort()).to.deep.equal(['DELETE', 'GET', 'HEAD', 'PUT']);
      const login = await world.anonymous.get('/api/v1/auth/login');
      expectProblem(login, 405, 'method_not_allowed');
      expect(login.headers.get('allow')).to.equal('POST');
      expectProblem(await admin.send('OPTIONS', statuses), 405, 'method_not_allowed');
    });

    it('a caller who may not use a path does not learn its methods', async () => {
      expectProblem(await world.anonymous.send('PATCH', statuses), 403, 'tenant_required');
      const named = await world.anonymous.send('PATCH', statuses, undefined, { 'X-Tenant': world.acme.guid });
      expectProblem(named, 401, 'unauthorized');
      expect(named.headers.get('allow')).to.equal(null);
    });

    it('does not let a header or the query choose another method', async () => {
      for (const name of ['X-HTTP-Method-Override', 'X-HTTP-Method', 'X-Method-Override']) {
        const answer = await admin.post(`${statuses}?_method=DELETE`, { Title: name }, { [name]: 'DELETE' });
        expect(answer.status).to.equal(201);
        expect((await admin.get(`${statuses}/1`, { [name]: 'DELETE' })).status).to.equal(200);
      }
      expect((await admin.get(`${statuses}/1?_method=DELETE`)).status).to.equal(200);
    });

    it('answers HEAD as GET, without a body', async () => {
      for (const path of [statuses, `${statuses}/1`, '/api/v1/auth/me']) {
        const [head, get] = [await askHead(path, admin), await admin.get(path)];
        expect(head.status).to.equal(200);
        for (const name of ['content-type', 'content-length', 'etag', 'cache-control'])
          expect(head.headers.get(name), name).to.equal(get.headers.get(name));
      }
    });

    it('HEAD requires the same permission as GET', async () => {
      const reader = await world.loginAs(world.acme, { permissions: [] });
      const named = { 'X-Tenant': world.acme.guid };
      const callers: [Client, Record<string, string>][] = [
        [world.anonymous, {}],
        [world.anonymous, named],
        [reader, {}],
      ];
      for (const [caller, headers] of callers) {
        const [head, get] = [await askHead(statuses, caller, headers), await caller.get(statuses, headers)];
        expect(get.status).to.be.oneOf([401, 403]);
        expect(head.status).to.equal(get.status);
        expect(head.headers.get('www-authenticate')).to.equal(get.headers.get('www-authenticate'));
      }
      expect((await askHead(`${statuses}/999`, admin)).status).to.equal(404);
      const { text } = await sendRaw(world.url, rawRequest(`HEAD ${statuses}`, ['Connection: close']));
      expect(text.split('\r\n\r\n')[1]).to.equal('');
    });
  });

  describe('paths', () => {
    it('a path has exactly one spelling', async () => {
      for (const path of [
        '/api/v1/entitystatus',
        '/API/v1/EntityStatus',
        `${statuses}/`,
        `${statuses}/1/`,
        `//api/v1/EntityStatus`,
        '/api//v1/EntityStatus',
        '/api/v2/EntityStatus',
        '/api/v1/EntityStatuses',
        '/api/v1/Entity%2FStatus',
        '/api/v1',
        '/package.json',
        '/.git/config',
        '/src/main.ts',
        '/docsX',
      ])
        expectProblem(await admin.get(path), 404, 'not_found');
    });

    it('dot segments never leave a path', async () => {
      for (const path of [
        '/docs/../api/v1/EntityStatus',
        '/docs%2f..%2fapi/v1/EntityStatus',
        '/docs/%2e%2e/api/v1/EntityStatus',
        '/api/v1/auth/login/../../EntityStatus',
        '/api/v1/auth/login%2f..%2f..%2fEntityStatus',
        '/api/Data/GenerateToken/../../v1/EntityStatus',
        '/api/v1/EntityStatus/..;/EntityStatus',
        '/..%5c..%5cetc%5cpasswd',
      ]) {
        const ask = (...headers: string[]) =>
          sendRaw(world.url, rawRequest(`GET ${path}`, [...headers, 'Connection: close']));
        const [nobody, user] = [await ask(), await ask(authorization)];
        expect(nobody.statuses, path).to.deep.equal([403]);
        expect(user.statuses, path).to.deep.equal([404]);
        expect(nobody.text + user.text, path).not.to.match(/Prospect/);
      }
    });

    it('a path that cannot be decoded gets 404', async () => {
      for (const path of ['/%', '/%zz', `${statuses}/%`, `${statuses}/%ff`, `${statuses}/%00`, `${statuses}/1%00`])
        expectProblem(await admin.get(path), 404, 'not_found');
      expect((await world.anonymous.get(`${statuses}/%ff`)).status).to.equal(403);
    });

    it('the Host header does not affect routing, and absolute URLs are accepted', async () => {
      const ask = (target: string, host: string): Promise<RawResult> =>
        sendRaw(world.url, `GET ${target} HTTP/1.1\r\nHost: ${host}\r\n${authorization}\r\nConnection: close\r\n\r\n`);
      for (const host of ['', '[', '%', '<>', 'a b', 'a:b:c', 'x:99999', '@', 'é']) {
        for (const path of ['/api/v1/Activity?limit=2', 'http://other.test/api/v1/Activity?limit=2'])
          expect((await ask(path, host)).statuses, `${host} ${path}`).to.deep.equal([200]);
        expect((await ask('/api/v1/Activity?limit=0', host)).statuses, host).to.deep.equal([400]);
        const { statuses, text } = await ask('http://[/api/v1/Activity', host);
        expect(statuses).to.deep.equal([400]);
        expect(text).to.match(/"code":"invalid_request"/);
      }
    });

    it('an id has one form in a path; every other form gets 404', async () => {
      for (const id of [
        '0',
        '-1',
        '01',
        '1e3',
        '1.0',
        '+1',
        ' 1',
        '%201',
        '1%20',
        '0x1',
        '２',
        '2147483648',
        '9'.repeat(31),
      ]) {
        for (const method of ['GET', 'PUT', 'DELETE']) {
          const answer = await admin.send(method, `${statuses}/${id}`, method === 'PUT' ? { Title: 'x' } : undefined);
          expectProblem(answer, 404, 'not_found');
        }
      }
      expect((await admin.get(`${statuses}/2147483647`)).status).to.equal(404);
      expect((await admin.get(`${statuses}/1`)).status).to.equal(200);
    });

    it('without a tenant, existing and missing paths get the same response', async () => {
      const [known, unknown] = [await world.anonymous.get(statuses), await world.anonymous.get('/api/v1/Nothing')];
      expect(known.status).to.equal(unknown.status);
      expect({ ...known.body, traceId: '' }).to.deep.equal({ ...unknown.body, traceId: '' });
    });
  });

  describe('answers', () => {
    it('every error is problem+json, whatever the Accept header prefers', async () => {
      const html = { Accept: 'text/html,application/xhtml+xml' };
      expectProblem(await admin.get('/nothing', html), 404, 'not_found');
      expectProblem(await admin.get(`${statuses}/999`, html), 404, 'not_found');
      expectProblem(await admin.send('PATCH', statuses, undefined, html), 405, 'method_not_allowed');
      expectProblem(await admin.post(statuses, '{', html), 400, 'malformed_json');
      expectProblem(await admin.post(statuses, {}, html), 400, 'validation_failed');
      expectProblem(
        await admin.post(statuses, '{}', { ...html, 'Content-Type': 'text/plain' }),
        415,
        'unsupported_media_type',
      );
      expectProblem(await admin.post(statuses, ' '.repeat(70_000), html), 413, 'payload_too_large');
      expectProblem(await world.anonymous.get(statuses, html), 403, 'tenant_required');
      expectProblem(await admin.withToken('a.b.c').get(statuses, html), 401, 'invalid_token');
    });

    it('a response does not reveal the software of the service', async () => {
      for (const answer of [await admin.get(statuses), await admin.get('/nothing'), await admin.post(statuses, '{')]) {
        for (const name of ['x-powered-by', 'server', 'access-control-allow-origin'])
          expect(answer.headers.get(name), name).to.equal(null);
        expect(answer.headers.get('x-content-type-options')).to.equal('nosniff');
      }
    });

    it('a response allows no other origin', async () => {
      for (const origin of ['https://evil.test', 'null', 'http://backoffice.test.evil.test', world.url]) {
        const preflight = await admin.send('OPTIONS', statuses, undefined, {
          Origin: origin,
          'Access-Control-Request-Method': 'GET',
        });
        const simple = await admin.get(statuses, { Origin: origin });
        for (const answer of [preflight, simple])
          for (const name of answer.headers.keys()) expect(name).not.to.match(/^access-control-/);
      }
    });

    it('a response has a request id of the service, never one from the client', async () => {
      const sent = '00000000-0000-4000-8000-000000000000';
      const [one, two] = [await admin.get(statuses, { 'X-Request-Id': sent }), await admin.get(statuses)];
      expect(one.headers.get('x-request-id')).to.match(uuid).and.not.equal(sent);
      expect(two.headers.get('x-request-id')).to.match(uuid).and.not.equal(one.headers.get('x-request-id'));
    });

    it('only reference data may be cached, and the client must revalidate it', async () => {
      for (const path of [statuses, `${statuses}/1`]) {
        const read = await admin.get(path);
        expect(read.headers.get('cache-control')).to.equal('private, no-cache');
        expect(read.headers.get('etag')).to.match(/^"[\w-]{20,}"$/);
      }
      const others = [
        await admin.get('/api/v1/auth/me'),
        await world.anonymous.post('/api/v1/auth/login', world.acme.admin, { 'X-Tenant': world.acme.guid }),
        await admin.post(statuses, { Title: 'Kept nowhere' }),
        await admin.get('/nothing'),
      ];
      for (const { headers } of others) {
        expect(headers.get('cache-control')).to.equal('no-store');
        expect(headers.get('etag')).to.equal(null);
      }
    });

    it('a client with a current copy gets 304', async () => {
      const { headers } = await admin.get(statuses);
      const etag = headers.get('etag') ?? '';
      for (const value of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
        const again = await admin.get(statuses, { 'If-None-Match': value });
        expect([again.status, again.body], value).to.deep.equal([304, '']);
        expect(again.headers.get('etag')).to.equal(etag);
      }
      expect((await admin.get(statuses, { 'If-None-Match': '"other"' })).status).to.equal(200);
      expect((await askHead(statuses, admin, { 'If-None-Match': etag })).status).to.equal(304);

      await admin.put(`${statuses}/1`, { Weighting: -7 });
      const changed = await admin.get(statuses, { 'If-None-Match': etag });
      expect(changed.status).to.equal(200);
      expect(changed.headers.get('etag')).not.to.equal(etag);
      await admin.put(`${statuses}/1`, { Weighting: 0 });
    });

    it('a client with a current copy still needs a valid token', async () => {
      const etag = (await admin.get(statuses)).headers.get('etag') ?? '';
      const named = { 'X-Tenant': world.acme.guid, 'If-None-Match': etag };
      expectProblem(await world.anonymous.get(statuses, named), 401, 'unauthorized');
      const other = await world.login(world.globex);
      const theirs = await other.get(statuses, { 'If-None-Match': etag });
      expect(theirs.status).to.equal(200);
    });
  });

  it('1,000 idle connections delay no request of others, and the server closes them', async () => {
    const { port } = new URL(world.url);
    const ends: Promise<unknown>[] = [];
    let open = 0;
    for (let batch = 0; batch < 10; batch++) {
      const sockets = Array.from({ length: 100 }, () => connect(Number(port), '127.0.0.1').resume());
      open += sockets.length;
      for (const socket of sockets) ends.push(once(socket, 'close').then(() => open--));
      await Promise.all(sockets.map(socket => once(socket, 'connect')));
    }
    expect((await admin.get(statuses, { Connection: 'close' })).status).to.equal(200);
    // The response did not wait for the end of the idle connections.
    expect(open, 'connections that are still idle').to.be.greaterThan(0);
    await Promise.all(ends);
  });
});
