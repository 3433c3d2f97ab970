import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import type { ApiResponse } from '../../support/client.ts';
import { rawRequest, sendRaw } from '../../support/raw-http.ts';
import { useLogin, useWorld } from '../../support/world.ts';

const app = 'https://app.example.com';
const local = 'http://localhost:5173';
const statuses = '/api/v1/EntityStatus';

const corsHeaders = ({ headers }: ApiResponse) =>
  [...headers.keys()].filter(name => name.startsWith('access-control-'));

describe('cross-origin requests', () => {
  const world = useWorld({
    CORS_ORIGINS: `${app}, ${local}`,
    RATE_LIMIT_GLOBAL: '100/60s',
    TRUSTED_PROXIES: '127.0.0.1',
  });
  const admin = useLogin(world, 'acme');

  const preflight = (origin: string, path = statuses, headers = {}) =>
    world.anonymous.send('OPTIONS', path, undefined, {
      Origin: origin,
      'Access-Control-Request-Method': 'PUT',
      'Access-Control-Request-Headers': 'authorization,content-type,if-match',
      ...headers,
    });

  it('a preflight of a listed origin gets 204 without a token or a tenant, for every path', async () => {
    for (const origin of [app, local]) {
      for (const path of [statuses, '/api/v1/auth/login', '/api/v1/Nothing']) {
        const { status, headers } = await preflight(origin, path);

        expect(status).to.equal(204);
        expect(headers.get('access-control-allow-origin')).to.equal(origin);
        expect(headers.get('access-control-allow-methods')).to.equal(
          'GET,HEAD,POST,PUT,PATCH,DELETE',
        );
        expect(headers.get('access-control-allow-headers')).to.equal(
          'authorization,content-type,if-match',
        );
        expect(Number(headers.get('access-control-max-age'))).to.be.above(0);
        expect(headers.get('vary')).to.match(/\bOrigin\b/);
      }
    }
  });

  it('a response to a listed origin names that origin, and the headers that its scripts may read', async () => {
    const read = await admin.get(statuses, { Origin: app });

    expect(read.headers.get('access-control-allow-origin')).to.equal(app);
    expect(read.headers.get('vary')?.split(', ')).to.have.members([
      'Origin',
      'Authorization',
      'Accept',
    ]);

    const exposed = read.headers.get('access-control-expose-headers')?.split(',') ?? [];
    expect(exposed).to.include.members([
      'ETag',
      'Link',
      'Location',
      'RateLimit',
      'RateLimit-Limit',
      'RateLimit-Policy',
      'RateLimit-Remaining',
      'RateLimit-Reset',
      'Retry-After',
      'X-Request-Id',
    ]);

    const wellKnown = [
      'cache-control',
      'connection',
      'content-length',
      'content-type',
      'date',
      'keep-alive',
      'vary',
    ];
    const security = ['referrer-policy', 'x-content-type-options'];
    const sent = [...read.headers.keys()].filter(name => !/^access-control-/.test(name));
    expect(exposed.map(name => name.toLowerCase()).concat(wellKnown, security)).to.include.members(
      sent,
    );
  });

  it('errors allow a listed origin to read them, 401, 404 and 429 included', async () => {
    const address = { 'X-Forwarded-For': '203.0.113.9' };

    for (const [path, status] of [
      [statuses, 401],
      ['/api/v1/Nothing', 401],
    ] as const) {
      const response = await world.anonymous.get(path, {
        Origin: app,
        'X-Tenant': world.acme.guid,
        ...address,
      });
      expect(response.status).to.equal(status);
      expect(response.headers.get('access-control-allow-origin')).to.equal(app);
    }

    const missing = await admin.get(`${statuses}/999999`, { Origin: app, ...address });
    expect(missing.status).to.equal(404);
    expect(missing.headers.get('access-control-allow-origin')).to.equal(app);

    const many = await Promise.all(
      Array.from({ length: 100 }, () => admin.get(statuses, { Origin: app, ...address })),
    );
    const limited = many.find(({ status }) => status === 429);
    expect(limited?.headers.get('access-control-allow-origin')).to.equal(app);
    expect(limited?.headers.get('vary')).to.match(/\bOrigin\b/);
  });

  it('preflights of listed origins and pages have a limit of their own, ten times that of requests', async () => {
    const address = { 'X-Forwarded-For': '203.0.113.10' };
    const client = await world.login(world.acme);
    const pages = ['/docs', '/', '/css/base.css', '/docs/openapi.json', '/swagger'];

    const preflights = await Promise.all(
      Array.from({ length: 990 }, () => preflight(app, statuses, address)),
    );
    for (const path of pages) await world.anonymous.get(path, address);
    const request = await client.get(statuses, address);
    const later = await Promise.all(
      Array.from({ length: 10 }, () => preflight(app, statuses, address)),
    );

    expect(preflights.every(({ status }) => status === 204)).to.equal(true);
    expect(preflights[0]?.headers.get('ratelimit-policy')).to.equal('"Pages";q=1000;w=60');
    expect(request.status).to.equal(200);
    expect(request.headers.get('ratelimit')).to.match(/^"Global";r=99;/);
    expect(later.filter(({ status }) => status === 429)).to.have.length.above(0);
  });

  it('preflights of other origins, and paths that are no page, count as requests', async () => {
    const address = { 'X-Forwarded-For': '203.0.113.11' };
    const leftAfter = ({ headers }: ApiResponse) => headers.get('ratelimit');

    expect(leftAfter(await preflight('https://evil.test', statuses, address))).to.match(
      /^"Global";r=99;/,
    );
    expect(leftAfter(await world.anonymous.get('/docs/nothing', address))).to.match(
      /^"Global";r=98;/,
    );
    expect(leftAfter(await world.anonymous.get('/accept', address))).to.match(/^"Global";r=97;/);
    expect(leftAfter(await world.anonymous.send('OPTIONS', statuses, undefined, address))).to.match(
      /^"Global";r=96;/,
    );
  });

  it('a preflight of an unlisted origin is refused as such, and one line of the log names the setting', async () => {
    const origin = 'https://new.example.com';
    const address = { 'X-Forwarded-For': '203.0.113.12' };

    for (const path of [statuses, '/api/v1/auth/login', '/api/v1/Nothing', '/docs']) {
      const { status, body, headers } = await preflight(origin, path, address);

      expect(status, path).to.equal(403);
      expect(body.code).to.equal('origin_not_allowed');
      expect(headers.get('vary')).to.match(/\bOrigin\b/);
    }

    const lines = world.logs.filter(
      line => line.includes('unlisted_origin') && line.includes(origin),
    );
    expect(lines).to.have.length(1);
    expect(JSON.parse(lines[0] ?? '').msg).to.include('CORS_ORIGINS');
  });

  it('an unlisted origin, even one that resembles a listed one, may read nothing', async () => {
    for (const origin of [
      'null',
      'https://evil.test',
      `${app}.evil.test`,
      'https://app.example.com:8443',
      'http://app.example.com',
      'https://APP.example.com',
      'https://sub.app.example.com',
      `${app}/`,
      `${app}, ${local}`,
    ]) {
      const [asked, simple] = [
        await preflight(origin),
        await admin.get(statuses, { Origin: origin }),
      ];

      expect(asked.status, origin).to.not.equal(204);
      expect([...corsHeaders(asked), ...corsHeaders(simple)], origin).to.deep.equal([]);
    }
  });

  it('no response allows all origins, or cookies', async () => {
    for (const response of [
      await preflight(app),
      await admin.get(statuses, { Origin: app }),
      await admin.get(statuses),
    ]) {
      expect(response.headers.get('access-control-allow-origin')).to.not.equal('*');
      expect(response.headers.get('access-control-allow-credentials')).to.equal(null);
    }
  });

  it('a response of the parser can be read by scripts of a listed origin, and by no others', async () => {
    const long = `X-Long: ${'x'.repeat(17_000)}`;
    for (const [origin, allowed] of [
      [app, app],
      [local, local],
      ['https://evil.example', undefined],
    ]) {
      for (const headers of [
        [`Origin: ${origin}`, long],
        [long, `Origin: ${origin}`],
      ]) {
        const { text, statuses } = await sendRaw(world.url, rawRequest('GET /', headers), {
          until: /\}$/,
        });

        expect(statuses).to.deep.equal([431]);
        expect(/^Access-Control-Allow-Origin: (.*)\r$/im.exec(text)?.[1]).to.equal(allowed);
      }
    }
  });

  it('CORS_ORIGINS accepts exact origins only', () => {
    for (const value of [
      '*',
      'null',
      'app.example.com',
      `${app}/`,
      `${app}/path`,
      'https://*.example.com',
      'ftp://x.test',
    ]) {
      expect(() => readConfig({ CORS_ORIGINS: value }), value).to.throw(
        'CORS_ORIGINS must be a comma-separated list',
      );
    }

    expect(readConfig({ CORS_ORIGINS: ` ${app} ,,${local}` }).corsOrigins).to.deep.equal([
      app,
      local,
    ]);
  });
});
