import { once } from 'node:events';
import { connect } from 'node:net';
import { expect } from 'chai';
import type { ApiResponse, Client } from '../../support/client.ts';
import { type RawResult, rawRequest, sendRaw } from '../../support/raw-http.ts';
import { useLogin, useWorld } from '../../support/world.ts';

const collection = '/api/v1/EntityStatus';
const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

function expectProblem(response: ApiResponse, status: number, code: string): void {
  expect(response.status).to.equal(status);
  expect(response.headers.get('content-type')).to.equal('application/problem+json');
  expect(response.headers.get('cache-control')).to.equal('no-store');
  expect(response.body).to.include({ status, code, type: `/docs/errors#${code}` });
  expect(response.body.title).to.be.a('string').and.not.equal('');
  expect(response.body.traceId).to.match(uuid).and.equal(response.headers.get('x-request-id'));
}

/**
 * Sends a HEAD request. The test client cannot: it parses the body, which a response to HEAD
 * does not have.
 */
function sendHead(
  path: string,
  { url, tokens }: Client,
  headers: Record<string, string> = {},
): Promise<Response> {
  const bearer = tokens ? { Authorization: `Bearer ${tokens.accessToken}` } : {};
  return fetch(`${url}${path}`, {
    method: 'HEAD',
    headers: { ...bearer, ...headers } as Record<string, string>,
  });
}

describe('HTTP protocol', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  let authorization: string;

  before(async () => {
    authorization = `Authorization: Bearer ${admin.tokens?.accessToken}`;
  });
  afterEach('the service still responds', async () => {
    expect((await admin.get(collection)).status).to.equal(200);
  });

  describe('message framing', () => {
    const chunked = '0\r\n\r\n';
    const smuggled: Record<string, string> = {
      'Content-Length with Transfer-Encoding': rawRequest(
        `POST ${collection}`,
        ['Content-Length: 6', 'Transfer-Encoding: chunked'],
        `${chunked}G`,
      ),
      'two Content-Length headers': rawRequest(
        `POST ${collection}`,
        ['Content-Length: 0', 'Content-Length: 5'],
        'GET /',
      ),
      'a Content-Length header with a list': rawRequest(
        `POST ${collection}`,
        ['Content-Length: 0, 5'],
        'GET /',
      ),
      'a Content-Length with a sign': rawRequest(
        `POST ${collection}`,
        ['Content-Length: +5'],
        'GET /',
      ),
      'an unknown transfer coding': rawRequest(
        `POST ${collection}`,
        ['Transfer-Encoding: xchunked'],
        chunked,
      ),
      'a transfer coding after chunked': rawRequest(
        `POST ${collection}`,
        ['Transfer-Encoding: chunked, identity'],
        chunked,
      ),
      'a transfer coding before chunked': rawRequest(
        `POST ${collection}`,
        ['Transfer-Encoding: gzip, chunked'],
        chunked,
      ),
      'two Content-Type headers': rawRequest(
        `POST ${collection}`,
        ['Content-Type: application/json', 'Content-Type: text/plain', 'Content-Length: 0'],
        '',
      ),
      'a folded Transfer-Encoding header': rawRequest(
        `POST ${collection}`,
        ['Transfer-Encoding:\r\n chunked'],
        chunked,
      ),
      'a header name that ends with a space': rawRequest(
        `POST ${collection}`,
        ['Transfer-Encoding : chunked'],
        chunked,
      ),
      'lines that end without a carriage return': `GET ${collection} HTTP/1.1\nHost: backoffice.test\n\n`,
      'a carriage return inside a header': rawRequest(`GET ${collection}`, [
        'X-A: b\rContent-Length: 5',
      ]),
      'no Host header': `GET ${collection} HTTP/1.1\r\n\r\n`,
      'two Host headers': rawRequest(`GET ${collection}`, ['host: other.test']),
      'two equal Host headers': rawRequest(`GET ${collection}`, ['Host: backoffice.test']),
      'an absolute URL and two Host headers': rawRequest(
        `GET http://backoffice.test${collection}`,
        ['Host: other.test'],
      ),
      'two Host headers in HTTP/1.0': `GET ${collection} HTTP/1.0\r\nHost: a\r\nHost: b\r\nConnection: keep-alive\r\n\r\n`,
      'a Host header that is no host': `GET ${collection} HTTP/1.1\r\nHost: a b\r\n\r\n`,
      'bytes of another protocol': 'SSH-2.0-OpenSSH_9.9\r\n\r\n',
    };
    for (const [name, bytes] of Object.entries(smuggled)) {
      it(`a request with ${name} is rejected with 400 and the connection is closed`, async () => {
        const second = rawRequest(`GET ${collection}`, [authorization]);
        const { statuses, text, closed } = await sendRaw(world.url, [bytes, second]);
        expect(statuses).to.deep.equal([400]);
        expect(text)
          .to.match(/^Content-Type: application\/problem\+json\r$/im)
          .and.match(/"code":"invalid_request"/);
        expect(closed).to.equal(true);
      });
    }

    it('a chunk with an invalid size is rejected, and no bytes after it are read as a request', async () => {
      const head = rawRequest(`POST ${collection}`, [
        authorization,
        'Content-Type: application/json',
        'Transfer-Encoding: chunked',
      ]);

      const { statuses, closed } = await sendRaw(world.url, [
        `${head}zz\r\n`,
        rawRequest(`GET ${collection}`, [authorization]),
      ]);

      expect(statuses).to.deep.equal([400]);
      expect(closed).to.equal(true);
    });

    it('request headers of more than 16 KiB are rejected with 431', async () => {
      const { statuses, text, closed } = await sendRaw(
        world.url,
        rawRequest(`GET ${collection}`, [authorization, `X-Long: ${'x'.repeat(17_000)}`]),
      );
      expect(statuses).to.deep.equal([431]);
      expect(text).to.match(/^Content-Type: application\/problem\+json\r$/im);
      expect(closed).to.equal(true);
    });

    it('a request with 200 headers is rejected with 431, and no header is dropped silently', async () => {
      const many = Array.from({ length: 200 }, (_, number) => `X-${number}: 1`);
      const { statuses, closed } = await sendRaw(
        world.url,
        rawRequest(`GET ${collection}`, [...many, authorization]),
      );
      expect(statuses).to.deep.equal([431]);
      expect(closed).to.equal(true);
    });

    it('a client that sends Expect: 100-continue for 1 GB gets a response without sending the body', async () => {
      const { statuses, closed } = await sendRaw(
        world.url,
        rawRequest(`POST ${collection}`, [
          authorization,
          'Content-Type: application/json',
          'Content-Length: 1073741824',
          'Expect: 100-continue',
        ]),
      );

      expect(statuses).to.deep.equal([413]);
      expect(closed).to.equal(true);
    });

    it('a body that a request may not have is refused without 100 Continue, whatever refuses it', async () => {
      const [json, expects] = ['Content-Type: application/json', 'Expect: 100-continue'];
      const named = `X-Tenant: ${world.acme.guid}`;

      for (const [request, status] of [
        [
          rawRequest('POST /api/v1/auth/login', [named, json, 'Content-Length: 9000', expects]),
          413,
        ],
        [
          rawRequest(`POST ${collection}`, [
            authorization,
            'Content-Length: 9',
            'Content-Type: text/plain',
            expects,
          ]),
          415,
        ],
        [rawRequest(`POST ${collection}`, [named, json, 'Content-Length: 9', expects]), 401],
        [
          rawRequest(`DELETE ${collection}/9999`, [authorization, 'Content-Length: 9', expects]),
          404,
        ],
      ] as const) {
        const { statuses, closed } = await sendRaw(world.url, request);
        expect(statuses).to.deep.equal([status]);
        expect(closed).to.equal(true);
      }
    });

    it('a client that sends Expect: 100-continue may send a body within the limit', async () => {
      const body = '{"Title":"Asked first"}';

      const { text, statuses } = await sendRaw(
        world.url,
        [
          rawRequest(`POST ${collection}`, [
            authorization,
            'Content-Type: application/json',
            `Content-Length: ${body.length}`,
            'Expect: 100-continue',
          ]),
          body,
        ],
        { until: /Asked first/ },
      );

      expect(statuses).to.deep.equal([100, 201]);
      expect(text).to.match(/"Title":"Asked first"/);
    });

    it('the connection closes after a body that is too large, so no request inside the body is executed', async () => {
      const inner = rawRequest(`DELETE ${collection}/1`, [authorization]);
      const head = rawRequest(`POST ${collection}`, [
        authorization,
        'Content-Type: application/json',
        'Content-Length: 70000',
      ]);

      const { text, statuses, closed } = await sendRaw(world.url, [
        head,
        inner.padEnd(70_000),
        rawRequest(`GET ${collection}`, [authorization]),
      ]);

      // The server did not read the body, so its reset of the connection may arrive before the
      // response is read.
      expect([[], [413]]).to.deep.include(statuses);
      if (statuses.length > 0) expect(text).to.match(/^Connection: close\r$/im);
      expect(closed).to.equal(true);
      expect((await admin.get(`${collection}/1`)).status).to.equal(200);
    });

    it('the connection closes after a body of another type, so no request inside the body is executed', async () => {
      const inner = rawRequest(`DELETE ${collection}/1`, [authorization]);

      const { text, statuses, closed } = await sendRaw(
        world.url,
        rawRequest(
          `POST ${collection}`,
          [authorization, 'Content-Type: text/plain', `Content-Length: ${inner.length}`],
          inner,
        ),
      );

      expect(statuses).to.deep.equal([415]);
      expect(text).to.match(/^Connection: close\r$/im);
      expect(closed).to.equal(true);
      expect((await admin.get(`${collection}/1`)).status).to.equal(200);
    });

    it('the body of a rejected request is never executed as the next request', async () => {
      const inner = rawRequest(`GET ${collection}/1`, [authorization]);
      const { statuses, text } = await sendRaw(world.url, [
        // Without a token the request is rejected before its body is read.
        rawRequest(
          `POST ${collection}`,
          [`X-Tenant: ${world.acme.guid}`, `Content-Length: ${inner.length}`],
          inner,
        ),
        rawRequest(`GET ${collection}/2`, [authorization, 'Connection: close']),
      ]);

      expect(statuses).to.deep.equal([401, 200]);
      expect(text)
        .to.match(/"Id":2/)
        .and.not.match(/"Id":1/);
    });
  });

  describe('request methods', () => {
    it('TRACE gets 501, CONNECT ends the connection, and an unknown method gets 400', async () => {
      const request = (method: string) =>
        sendRaw(
          world.url,
          rawRequest(`${method} ${collection}`, [authorization, 'Connection: close']),
        );
      expect((await request('TRACE')).statuses).to.deep.equal([501]);
      expect(await request('CONNECT')).to.deep.include({ statuses: [], closed: true });
      expect((await request('FOO')).statuses).to.deep.equal([400]);
      expect((await request('get')).statuses).to.deep.equal([400]);
    });

    it('a 405 response lists the methods of the path in its Allow header', async () => {
      const patched = await admin.send('PATCH', collection, { Title: 'x' });
      expectProblem(patched, 405, 'method_not_allowed');
      expect(patched.headers.get('allow')?.split(', ').sort()).to.deep.equal([
        'GET',
        'HEAD',
        'POST',
      ]);

      const posted = await admin.post(`${collection}/1`, { Title: 'x' });
      expectProblem(posted, 405, 'method_not_allowed');
      expect(posted.headers.get('allow')?.split(', ').sort()).to.deep.equal([
        'DELETE',
        'GET',
        'HEAD',
        'PATCH',
        'PUT',
      ]);

      const login = await world.anonymous.get('/api/v1/auth/login');
      expectProblem(login, 405, 'method_not_allowed');
      expect(login.headers.get('allow')).to.equal('POST');

      expectProblem(await admin.send('OPTIONS', collection), 405, 'method_not_allowed');
    });

    it('another method on a page is 405, whoever asks', async () => {
      for (const [page, allowed] of [
        ['/docs', 'GET, HEAD'] as const,
        ['/reset', 'GET, HEAD, POST'] as const,
      ]) {
        const response = await world.anonymous.send('DELETE', page);
        expectProblem(response, 405, 'method_not_allowed');
        expect(response.headers.get('allow')).to.equal(allowed);
      }
    });

    it('the methods of a path are not disclosed to a caller without access to it', async () => {
      expectProblem(await world.anonymous.send('PATCH', collection), 403, 'tenant_required');
      const named = await world.anonymous.send('PATCH', collection, undefined, {
        'X-Tenant': world.acme.guid,
      });
      expectProblem(named, 401, 'unauthorized');
      expect(named.headers.get('allow')).to.equal(null);
    });

    it('a header or a query parameter cannot override the method of a request', async () => {
      for (const name of ['X-HTTP-Method-Override', 'X-HTTP-Method', 'X-Method-Override']) {
        const response = await admin.post(
          `${collection}?_method=DELETE`,
          { Title: name },
          { [name]: 'DELETE' },
        );
        expect(response.status).to.equal(201);
        expect((await admin.get(`${collection}/1`, { [name]: 'DELETE' })).status).to.equal(200);
      }

      expect((await admin.get(`${collection}/1?_method=DELETE`)).status).to.equal(200);
    });

    it('the response to HEAD has the status and headers of the response to GET, and no body', async () => {
      for (const path of [collection, `${collection}/1`, '/api/v1/auth/me']) {
        const [head, get] = [await sendHead(path, admin), await admin.get(path)];
        expect(head.status).to.equal(200);
        for (const name of ['content-type', 'content-length', 'etag', 'cache-control']) {
          expect(head.headers.get(name), name).to.equal(get.headers.get(name));
        }
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
        const [head, get] = [
          await sendHead(collection, caller, headers),
          await caller.get(collection, headers),
        ];

        expect(get.status).to.be.oneOf([401, 403]);
        expect(head.status).to.equal(get.status);
        expect(head.headers.get('www-authenticate')).to.equal(get.headers.get('www-authenticate'));
      }

      expect((await sendHead(`${collection}/999`, admin)).status).to.equal(404);
      const { text } = await sendRaw(
        world.url,
        rawRequest(`HEAD ${collection}`, ['Connection: close']),
      );
      expect(text.split('\r\n\r\n')[1]).to.equal('');
    });
  });

  describe('request paths', () => {
    it('a path has exactly one spelling', async () => {
      const otherSpellings = [
        '/api/v1/entitystatus',
        '/API/v1/EntityStatus',
        `${collection}/`,
        `${collection}/1/`,
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
      ];

      for (const path of otherSpellings) {
        expectProblem(await admin.get(path), 404, 'not_found');
      }
    });

    it('dot segments in a path never reach another route', async () => {
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
        const request = (...headers: string[]) =>
          sendRaw(world.url, rawRequest(`GET ${path}`, [...headers, 'Connection: close']));

        const [anonymous, user] = [await request(), await request(authorization)];

        expect(anonymous.statuses, path).to.deep.equal([403]);
        expect(user.statuses, path).to.deep.equal([404]);
        expect(anonymous.text + user.text, path).not.to.match(/Prospect/);
      }
    });

    it('a backslash in a path never counts as a slash, and a target with a fragment reaches no route', async () => {
      const get = (target: string) =>
        sendRaw(world.url, rawRequest(`GET ${target}`, [authorization, 'Connection: close']));

      for (const target of [
        '/api\\v1\\EntityStatus#',
        `${collection}#`,
        `${collection}?limit=1#`,
        'http://other.test\\api\\v1\\EntityStatus',
      ]) {
        expect((await get(target)).statuses, target).to.deep.equal([400]);
      }

      expect((await get('/api\\v1\\EntityStatus')).statuses).to.deep.equal([404]);
      expect((await get(`${collection}?q=a\\b`)).statuses).to.deep.equal([200]);
    });

    it('a path that cannot be decoded gets 404', async () => {
      for (const path of [
        '/%',
        '/%zz',
        `${collection}/%`,
        `${collection}/%ff`,
        `${collection}/%00`,
        `${collection}/1%00`,
      ]) {
        expectProblem(await admin.get(path), 404, 'not_found');
      }

      expect((await world.anonymous.get(`${collection}/%ff`)).status).to.equal(403);
    });

    it('the Host header does not affect routing, and absolute URLs are accepted', async () => {
      const request = (target: string, host: string): Promise<RawResult> =>
        sendRaw(
          world.url,
          `GET ${target} HTTP/1.1\r\nHost: ${host}\r\n${authorization}\r\nConnection: close\r\n\r\n`,
        );

      for (const host of [
        '',
        'a_b',
        'x:99999',
        'x:',
        '127.0.0.1',
        '[::1]:80',
        '%C3%A9',
        "!$&'()*+,;=~",
      ]) {
        for (const path of [
          '/api/v1/Activity?limit=2',
          'http://other.test/api/v1/Activity?limit=2',
        ]) {
          expect((await request(path, host)).statuses, `${host} ${path}`).to.deep.equal([200]);
        }

        expect((await request('/api/v1/Activity?limit=0', host)).statuses, host).to.deep.equal([
          400,
        ]);

        const { statuses, text } = await request('http://[/api/v1/Activity', host);
        expect(statuses).to.deep.equal([400]);
        expect(text).to.match(/"code":"invalid_request"/);
      }

      for (const host of ['[', '%', '<>', 'a b', 'a:b:c', '@', 'user@x', 'é', 'x/y', 'x, y']) {
        for (const path of ['/api/v1/Activity', 'http://other.test/api/v1/Activity']) {
          expect((await request(path, host)).statuses, `${host} ${path}`).to.deep.equal([400]);
        }
      }
    });

    it('an id in a path has exactly one spelling, and every other spelling gets 404', async () => {
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
          const response = await admin.send(
            method,
            `${collection}/${id}`,
            method === 'PUT' ? { Title: 'x' } : undefined,
          );
          expectProblem(response, 404, 'not_found');
        }
      }

      expect((await admin.get(`${collection}/2147483647`)).status).to.equal(404);
      expect((await admin.get(`${collection}/1`)).status).to.equal(200);
    });

    it('a request without a tenant gets the same response for an existing and a missing path', async () => {
      const [known, unknown] = [
        await world.anonymous.get(collection),
        await world.anonymous.get('/api/v1/Nothing'),
      ];
      expect(known.status).to.equal(unknown.status);
      expect({ ...known.body, traceId: '' }).to.deep.equal({ ...unknown.body, traceId: '' });
    });
  });

  describe('responses', () => {
    it('every error response of the API is application/problem+json, whatever the Accept header prefers', async () => {
      const html = { Accept: 'text/html,application/xhtml+xml' };

      expectProblem(await admin.get('/api/v1/Nothing', html), 404, 'not_found');
      expectProblem(await admin.get(`${collection}/999`, html), 404, 'not_found');
      expectProblem(
        await admin.send('PATCH', collection, undefined, html),
        405,
        'method_not_allowed',
      );

      expectProblem(await admin.post(collection, '{', html), 400, 'malformed_json');
      expectProblem(await admin.post(collection, {}, html), 400, 'validation_failed');
      expectProblem(
        await admin.post(collection, '{}', { ...html, 'Content-Type': 'text/plain' }),
        415,
        'unsupported_media_type',
      );
      expectProblem(
        await admin.post(collection, ' '.repeat(70_000), html),
        413,
        'payload_too_large',
      );

      expectProblem(await world.anonymous.get(collection, html), 403, 'tenant_required');
      expectProblem(await admin.withToken('a.b.c').get(collection, html), 401, 'invalid_token');
    });

    it('a response does not reveal the software of the service', async () => {
      for (const response of [
        await admin.get(collection),
        await admin.get('/nothing'),
        await admin.post(collection, '{'),
      ]) {
        for (const name of ['x-powered-by', 'server', 'access-control-allow-origin']) {
          expect(response.headers.get(name), name).to.equal(null);
        }
        expect(response.headers.get('x-content-type-options')).to.equal('nosniff');
      }
    });

    it('no response allows another origin to read it (CORS)', async () => {
      for (const origin of [
        'https://evil.test',
        'null',
        'http://backoffice.test.evil.test',
        world.url,
      ]) {
        const preflight = await admin.send('OPTIONS', collection, undefined, {
          Origin: origin,
          'Access-Control-Request-Method': 'GET',
        });
        const simple = await admin.get(collection, { Origin: origin });

        for (const response of [preflight, simple]) {
          for (const name of response.headers.keys()) expect(name).not.to.match(/^access-control-/);
        }
      }
    });

    it('the request id of a response is generated by the service, never taken from the client', async () => {
      const sent = '00000000-0000-4000-8000-000000000000';
      const [one, two] = [
        await admin.get(collection, { 'X-Request-Id': sent }),
        await admin.get(collection),
      ];
      expect(one.headers.get('x-request-id')).to.match(uuid).and.not.equal(sent);
      expect(two.headers.get('x-request-id'))
        .to.match(uuid)
        .and.not.equal(one.headers.get('x-request-id'));
    });

    it('a client may cache only reference data, and must revalidate it before each use', async () => {
      for (const path of [collection, `${collection}/1`]) {
        const read = await admin.get(path);
        expect(read.headers.get('cache-control')).to.equal(
          'private, no-cache, max-age=0, must-revalidate',
        );
        expect(read.headers.get('etag')).to.match(/^"[\w-]{20,}"$/);
      }

      const others = [
        await admin.get('/api/v1/auth/me'),
        await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
          'X-Tenant': world.acme.guid,
        }),
        await admin.get('/nothing'),
      ];

      for (const { headers } of others) {
        expect(headers.get('cache-control')).to.equal('no-store');
        expect(headers.get('etag')).to.equal(null);
      }

      const { headers } = await admin.post(collection, { Title: 'Kept nowhere' });
      expect(headers.get('cache-control')).to.equal('no-store');
    });

    it('a client whose copy is current gets 304, and 200 after the next change', async () => {
      const { headers } = await admin.get(collection);
      const etag = headers.get('etag') ?? '';
      for (const value of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
        const again = await admin.get(collection, { 'If-None-Match': value });
        expect(again.status, value).to.equal(304);
        expect(again.body, value).to.equal('');
        expect(again.headers.get('etag')).to.equal(etag);
      }
      expect((await admin.get(collection, { 'If-None-Match': '"other"' })).status).to.equal(200);
      expect((await sendHead(collection, admin, { 'If-None-Match': etag })).status).to.equal(304);

      await admin.put(`${collection}/1`, { Weighting: -7 });
      const changed = await admin.get(collection, { 'If-None-Match': etag });
      expect(changed.status).to.equal(200);
      expect(changed.headers.get('etag')).not.to.equal(etag);
      await admin.put(`${collection}/1`, { Weighting: 0 });
    });

    it('a header without a value is as if it were absent, but for one without which a change would be unprotected', async () => {
      const record = { Code: 'EMPTY', Name: 'Empty', Rate: 1 };
      const { Id } = (await admin.post('/api/v1/TaxCodes', record)).body;
      const send = async (method: string, path: string, header: string, body?: object) => {
        const response = await fetch(`${world.url}${path}`, {
          method,
          headers: {
            Authorization: `Bearer ${admin.tokens?.accessToken}`,
            ...(body && { 'Content-Type': 'application/json' }),
            [header]: '',
          },
          ...(body && { body: JSON.stringify(body) }),
        });
        await response.body?.cancel(); // that of a stream does not end
        return response.status;
      };
      const path = `/api/v1/TaxCodes/${Id}`;
      const ignored = [
        'Accept',
        'Accept-Encoding',
        'Accept-Language',
        'Cache-Control',
        'If-Match',
        'If-Modified-Since',
        'If-None-Match',
        'Last-Event-ID',
        'Prefer',
        'Range',
        'traceparent',
        'X-Api-Token',
        'X-Forwarded-For',
        'X-Tenant',
      ];

      for (const header of ignored) {
        expect(await send('GET', path, header), `GET ${header}`).to.equal(200);
      }
      for (const header of ['Content-Encoding', 'Prefer', 'X-Tenant']) {
        expect(await send('PUT', path, header, record), `PUT ${header}`).to.equal(200);
      }
      expect(await send('GET', '/api/v1/Changes/stream', 'Last-Event-ID')).to.equal(200);

      expect(await send('PUT', path, 'If-Match', record)).to.equal(400);
      expect(await send('PUT', path, 'If-None-Match', record)).to.equal(400);
      const other = { ...record, Code: 'OTHER' };
      expect(await send('POST', '/api/v1/TaxCodes', 'Idempotency-Key', other)).to.equal(400);
      expect((await admin.get('/api/v1/TaxCodes/code/OTHER')).status).to.equal(404);
    });

    it('a current ETag gives no access without a token, and no 304 to another tenant', async () => {
      await admin.post(collection, { Title: 'Of acme' });
      const etag = (await admin.get(collection)).headers.get('etag') ?? '';
      const named = { 'X-Tenant': world.acme.guid, 'If-None-Match': etag };
      expectProblem(await world.anonymous.get(collection, named), 401, 'unauthorized');
      const other = await world.login(world.globex);
      const foreign = await other.get(collection, { 'If-None-Match': etag });
      expect(foreign.status).to.equal(200);
    });
  });

  it('1,000 idle connections do not delay other requests, and the server closes them', async () => {
    const { port } = new URL(world.url);
    const ends: Promise<unknown>[] = [];
    let open = 0;

    for (let batch = 0; batch < 10; batch++) {
      const sockets = Array.from({ length: 100 }, () =>
        connect(Number(port), '127.0.0.1').resume(),
      );
      open += sockets.length;
      for (const socket of sockets) ends.push(once(socket, 'close').then(() => open--));
      await Promise.all(sockets.map(socket => once(socket, 'connect')));
    }

    expect((await admin.get(collection, { Connection: 'close' })).status).to.equal(200);
    // The response did not wait for the end of the idle connections.
    expect(open, 'connections that are still idle').to.be.greaterThan(0);

    await Promise.all(ends);
  });
});
