import { Agent, type IncomingHttpHeaders, request } from 'node:http';
import { expect } from 'chai';
import { problems } from '../../src/lib/problems.ts';
import { documents } from '../../src/service/pages/document-page.ts';
import { referencePath } from '../../src/service/pages/reference.ts';
import { document, routes } from '../support/contract.ts';
import { useLogin, useWorld } from '../support/world.ts';

const referencePages = [...new Set(routes.map(({ tag }) => referencePath(tag)))];
const htmlPaths = [
  ...documents.map(({ path }) => path),
  '/docs/reference',
  ...referencePages,
  '/docs/errors',
  '/swagger',
];
/** Every path of the documentation with its media type. */
const mediaTypes: Record<string, string> = {
  ...Object.fromEntries(htmlPaths.map(path => [path, 'text/html; charset=utf-8'])),
  '/docs/openapi.json': 'application/json; charset=utf-8',
  '/docs/search.json': 'application/json; charset=utf-8',
  '/docs/docs.js': 'text/javascript; charset=utf-8',
  '/docs/element.js': 'text/javascript; charset=utf-8',
  '/docs/search.js': 'text/javascript; charset=utf-8',
  '/css/base.css': 'text/css; charset=utf-8',
  '/css/docs.css': 'text/css; charset=utf-8',
  '/css/reference.css': 'text/css; charset=utf-8',
  '/css/explorer.css': 'text/css; charset=utf-8',
  '/swagger/start.js': 'text/javascript; charset=utf-8',
  '/swagger/login.js': 'text/javascript; charset=utf-8',
  '/swagger/swagger-ui.css': 'text/css; charset=utf-8',
  '/swagger/swagger-ui-bundle.js': 'text/javascript; charset=utf-8',
};

interface RawResponse {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
}

const agent = new Agent({ keepAlive: true });

/** Sends the path unchanged. `fetch` would normalise its dot segments. */
function rawGet(
  url: string,
  path: string,
  headers: Record<string, string> = {},
  method = 'GET',
): Promise<RawResponse> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const call = request({ hostname, port, path, method, headers, agent }, response => {
      let body = '';
      response.setEncoding('utf8').on('data', text => (body += text));
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body }),
      );
    });
    call.on('error', reject).end();
  });
}

describe('documentation pages', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  let authorization: Record<string, string>;
  /** The body of each HTML page, by path. */
  const pages = new Map<string, string>();
  /** The response to a GET of each path of the documentation. */
  const responses = new Map<string, RawResponse>();

  before(async () => {
    authorization = { Authorization: `Bearer ${admin.tokens?.accessToken}` };
    for (const path of [...Object.keys(mediaTypes), '/favicon.ico']) {
      responses.set(path, await rawGet(world.url, path));
    }
    for (const path of htmlPaths) pages.set(path, responseOf(path).body);
  });
  const responseOf = (path: string): RawResponse => responses.get(path) as RawResponse;

  for (const [path, type] of Object.entries(mediaTypes)) {
    it(`${path} is public, and its content security policy forbids every other origin`, () => {
      const { status, headers, body } = responseOf(path);
      expect(status).to.equal(200);
      expect(headers['content-type']).to.equal(type);
      expect(body.length).to.be.greaterThan(100);
      expect(headers['x-content-type-options']).to.equal('nosniff');
      const policy = String(headers['content-security-policy']);
      expect(policy).to.include("default-src 'none'").and.include("script-src 'self';");
      expect(policy).to.include("frame-ancestors 'none'").and.include("base-uri 'none'");
      expect(policy).not.to.match(/https?:|\*|unsafe/);
    });

    it(`HEAD ${path} returns the headers of GET without the body`, async () => {
      const get = responseOf(path);
      const head = await rawGet(world.url, path, {}, 'HEAD');
      expect(head.status).to.equal(200);
      expect(head.body).to.equal('');
      for (const name of ['content-type', 'content-length', 'etag', 'cache-control']) {
        expect(head.headers[name], name).to.equal(get.headers[name]);
      }
    });

    it(`${path} returns 304 for its current ETag, and the body for another one`, async () => {
      const { headers } = responseOf(path);
      const current = await rawGet(world.url, path, { 'If-None-Match': String(headers.etag) });
      expect(current.status).to.equal(304);
      expect(current.body).to.equal('');
      const outdated = await rawGet(world.url, path, { 'If-None-Match': '"other"' });
      expect(outdated.status).to.equal(200);
      expect(headers['cache-control']).to.equal('no-cache');
    });
  }

  it('the root path redirects to the guide', async () => {
    const { status, headers } = await rawGet(world.url, '/');
    expect(status).to.equal(302);
    expect(headers.location).to.equal('/docs');
  });

  it('an address with a slash at its end leads a browser to the page', async () => {
    for (const path of ['/docs', '/docs/reference', '/swagger']) {
      const { status, headers } = await rawGet(world.url, `${path}/`, {
        Accept: 'text/html,*/*;q=0.8',
      });
      expect(status).to.equal(302);
      expect(headers.location).to.equal(path);
    }
  });

  it('the service has an icon, and every page names it', async () => {
    const { status, headers, body } = await rawGet(world.url, '/favicon.ico');
    expect(status).to.equal(200);
    expect(headers['content-type']).to.equal('image/svg+xml');
    expect(body).to.match(/^<svg /);
    for (const path of htmlPaths) {
      expect(pages.get(path), path).to.include('<link rel="icon" href="/favicon.ico">');
    }
  });

  it('a browser gets a 404 page for an unknown path outside /api, and every other client a problem', async () => {
    const browser = { Accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' };

    for (const path of ['/nope', '/docsX/nope', '/api-docs', '/apis/v1']) {
      const { status, headers, body } = await rawGet(world.url, path, browser);
      expect(status, path).to.equal(404);
      expect(headers['content-type'], path).to.equal('text/html; charset=utf-8');
      expect(headers['cache-control'], path).to.equal('no-store');
      expect(body)
        .to.include('There is no such page')
        .and.include('href="/docs"')
        .and.not.include('nope');
      expect(headers['content-security-policy']).to.include(`default-src 'none'`);

      for (const Accept of ['application/json', '*/*']) {
        const other = await rawGet(world.url, path, { Accept });
        expect(other.status, path).to.equal(403);
        expect(JSON.parse(other.body).code, path).to.equal('tenant_required');
      }
    }

    for (const path of ['/api', '/api/v1/nope', '/api/v1/EntityStatus']) {
      expect((await rawGet(world.url, path, browser)).status, path).to.equal(403);
    }
  });

  it('the explorer has the header of the other pages, so that it leads back to them', () => {
    const headerOf = (path: string) =>
      /<header>.*<\/header>/s.exec(pages.get(path) ?? '')?.[0].replace(' aria-current="page"', '');
    expect(headerOf('/swagger')).to.be.a('string').and.equal(headerOf('/docs'));
  });

  it('the pages do not depend on the caller or on the named tenant', async () => {
    for (const path of htmlPaths) {
      const asUser = await rawGet(world.url, path, {
        ...authorization,
        'X-Tenant': world.globex.guid,
      });
      expect(asUser.body, path).to.equal(pages.get(path));

      const invalid = await rawGet(world.url, path, {
        Authorization: 'Bearer x',
        'X-Tenant': 'nobody',
      });
      expect(invalid.body, path).to.equal(pages.get(path));
    }
  });

  it('the pages refer to no other origin, and contain no inline script or style', () => {
    for (const [path, text] of pages) {
      const references = [
        ...text.matchAll(/\b(?:href|src|action|srcset|poster|data)="([^"]*)"/g),
      ].map(match => match[1]);
      expect(references).to.not.be.empty;
      for (const reference of references) expect(reference, path).to.match(/^(\/(?!\/)|#|data:,$)/);

      const urls = [...text.matchAll(/https?:\/\/[^\s"'<]+/g)].map(([url]) => url);
      // In examples: PUBLIC_URL, and names that RFC 2606 reserves for examples.
      for (const url of urls) {
        expect(url, path).to.match(
          /^(http:\/\/backoffice\.test|https?:\/\/(\w+\.)*example\.com)(:\d+)?(\/|;?$)/,
        );
      }

      expect(text).not.to.match(/<script>|\bon\w+="|style="|@import|url\(/);
    }
  });

  it('DOCS=api shows all pages but the handbook, with no link to it; DOCS=off shows none; both serve the API', async () => {
    const { url: api } = await world.startAnotherServer({ DOCS: 'api' });
    const { url: off } = await world.startAnotherServer({ DOCS: 'off' });

    const isHandbook = (path: string): boolean =>
      /^\/docs\/(operate|deploy|what-it-does-not-do)/.test(path);

    for (const path of Object.keys(mediaTypes)) {
      const shown = await rawGet(api, path);
      expect(shown.status === 200, path).to.equal(!isHandbook(path));

      if (shown.status === 200) {
        expect(shown.body, path).not.to.match(/["(]\/docs\/(operate|deploy|what-it-does-not-do)/);
      }

      expect((await rawGet(off, path, { Accept: 'text/html' })).status === 200, path).to.equal(
        path === '/css/base.css',
      );
    }

    expect((await rawGet(off, '/')).status).not.to.equal(302);
    for (const url of [api, off]) {
      const me = await rawGet(url, '/api/v1/auth/me', authorization);
      expect(me.status).to.equal(200);
      expect((await rawGet(url, '/reset')).status).to.equal(200);
    }
  });

  it('every link leads to an existing page and an existing anchor', async () => {
    const idsOf = new Map<string, Set<string>>();
    for (const [page, text] of pages) {
      const ids = [...text.matchAll(/\bid="([^"]+)"/g)].map(([, id = '']) => id);
      idsOf.set(page, new Set(ids));
      expect(idsOf.get(page)?.size, `ids of ${page}`).to.equal(ids.length);
    }

    const broken: string[] = [];
    for (const [page, text] of pages) {
      for (const [, link = ''] of text.matchAll(/\b(?:href|src)="([#/][^"]*)"/g)) {
        const [path = '', anchor] = link.split('#');
        const target = path === '' ? page : path;
        // a picture
        if (!responses.has(target)) responses.set(target, await rawGet(world.url, target));

        const isFound = anchor ? idsOf.get(target)?.has(anchor) : responseOf(target).status === 200;
        if (!isFound) broken.push(`${link} on ${page}`);
      }
    }

    expect(broken).to.deep.equal([]);
  });

  it('the errors page has a row for every problem code, at the address that `type` names', async () => {
    const text = pages.get('/docs/errors') ?? '';
    for (const [code, { status }] of Object.entries(problems)) {
      const row = text.match(new RegExp(`<tr id="${code}">.*?</tr>`))?.[0];
      expect(row, code).to.include(`>${status}<`).and.include(`<code>${code}</code>`);
    }
    const { body } = await world.anonymous.get('/api/v1/EntityStatus');
    expect(text).to.include(`id="${body.type.split('#')[1]}"`);
    expect(body.type.split('#')[0]).to.equal('/docs/errors');
  });

  it('the search index leads to every endpoint, every error code and every page of the guide', async () => {
    const entries: string[][] = JSON.parse((await rawGet(world.url, '/docs/search.json')).body);
    const found = entries.map(([, address = '']) => address);

    expect(found).to.include.members(documents.map(({ path }) => path));
    expect(found).to.include.members(Object.keys(problems).map(code => `/docs/errors#${code}`));

    for (const operations of Object.values(document.paths)) {
      for (const { operationId, tags } of Object.values(operations)) {
        expect(found).to.include(`${referencePath(tags[0] ?? '')}#${operationId}`);
      }
    }

    for (const address of found) {
      const [path = '', anchor] = address.split('#');
      if (anchor) expect(pages.get(path), address).to.include(`id="${anchor}"`);
      else expect(pages.has(path), address).to.equal(true);
    }
  });

  it('the reference has every endpoint with its permission and its fields', () => {
    const endpoints = referencePages.flatMap(path =>
      (pages.get(path) ?? '').split('<section class="endpoint"').slice(1),
    );
    const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({
        path,
        method: method.toUpperCase(),
        operation,
      })),
    );

    expect(endpoints).to.have.length(operations.length);

    for (const { path, method, operation } of operations) {
      const found =
        endpoints.find(part => part.includes(`>${method}<`) && part.includes(`>${path}<`)) ?? '';
      expect(found, `${method} ${path}`).to.include(operation.summary);
      if (operation['x-permission']) {
        expect(found).to.include(`<code>${operation['x-permission']}</code>`);
      }

      const { $ref = '' } = (operation.requestBody?.content['application/json']?.schema ?? {}) as {
        $ref?: string;
      };
      const body = document.components.schemas[$ref.split('/').at(-1) ?? ''] as
        | { properties?: object }
        | undefined;
      for (const field of Object.keys(body?.properties ?? {})) {
        expect(found).to.include(`<code>${field}</code>`);
      }
    }
  });

  it('the pages reveal no tenant, user, database or setting of the installation', () => {
    const { acme, config } = world;
    const secrets = [
      acme.guid,
      acme.database,
      acme.admin.email,
      acme.admin.password,
      String(config.databaseUrl),
    ];

    for (const [page, text] of pages) {
      for (const secret of secrets) expect(text, page).not.to.include(secret);
    }
  });

  describe('documentation paths as a way around authentication', () => {
    const detours = [
      '/docs/../api/v1/EntityStatus',
      '/docs/..%2fapi/v1/EntityStatus',
      '/docs%2f..%2fapi/v1/EntityStatus',
      '/docs%2F..%2Fapi%2Fv1%2FEntityStatus',
      '/docs/%2e%2e/api/v1/EntityStatus',
      '/docs/.%2e/api/v1/EntityStatus',
      '/docs//api/v1/EntityStatus',
      '/docs;/api/v1/EntityStatus',
      '/docs\\..\\api\\v1\\EntityStatus',
      '//docs',
      '/./docs',
      '/DOCS',
      '/docsX',
      '/%64ocs',
      '/docs/../docs',
      '/css/../docs',
      '/css/..%2f..%2fpackage.json',
      '/css/../../package.json',
      '/CSS/docs.css',
      '/swagger/../api/v1/EntityStatus',
      '/swagger/..%2f..%2fpackage.json',
      '/swagger/%2e%2e/swagger-ui-dist/package.json',
      '/api/Data/GenerateToken/../../v1/Countries',
      '/api/Data/GenerateToken%2f..%2f..%2fv1/Countries',
      '/.git/config',
      '/.git/HEAD',
      '/.env',
      '/package.json',
      '/package-lock.json',
      '/src/service/app.ts',
      '/node_modules/koa/package.json',
      '/tenants/demo.json',
    ];

    for (const path of detours) {
      it(`${path} returns 403 without headers, and 404 with a token`, async () => {
        for (const method of ['GET', 'HEAD']) {
          const anonymous = await rawGet(world.url, path, {}, method);
          expect(anonymous.status).to.equal(403);
          expect(anonymous.headers['content-type']).to.equal('application/problem+json');

          const user = await rawGet(world.url, path, authorization, method);
          expect(user.status).to.equal(404);
          expect(user.headers['content-type']).to.equal('application/problem+json');

          if (method === 'GET') expect(JSON.parse(anonymous.body).code).to.equal('tenant_required');
          if (method === 'GET') expect(JSON.parse(user.body).code).to.equal('not_found');
        }
      });
    }

    it('a missing path below /docs, /css and /swagger is 404 for every caller, without a tenant and without a user', async () => {
      for (const path of [
        '/docs/',
        '/docs/nope',
        '/docs/reference/',
        '/docs/pages.ts',
        '/css',
        '/css/nope.css',
        '/swagger/',
        '/swagger/index.html',
        '/swagger/package.json',
        '/swagger/swagger-ui.css.map',
      ]) {
        for (const sender of [
          {},
          { 'X-Tenant': 'nobody' },
          { Authorization: 'Bearer x' },
          authorization,
        ]) {
          for (const method of ['GET', 'HEAD', 'POST', 'DELETE']) {
            const { status, headers, body } = await rawGet(world.url, path, sender, method);

            expect(status, `${method} ${path}`).to.equal(404);
            expect(headers['content-type']).to.equal('application/problem+json');
            if (method !== 'HEAD') expect(JSON.parse(body).code, path).to.equal('not_found');
          }
        }
      }
    });

    it('a documentation path accepts no method other than GET and HEAD', async () => {
      for (const path of ['/', ...Object.keys(mediaTypes)]) {
        for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
          for (const sender of [{}, authorization]) {
            const { status, headers } = await rawGet(world.url, path, sender, method);
            expect(status, `${method} ${path}`).to.equal(405);
            expect(headers.allow, `${method} ${path}`).to.equal('GET, HEAD');
          }
        }
      }
    });

    it('a documentation path ignores the query string', async () => {
      const response = await rawGet(world.url, '/docs?path=/api/v1/EntityStatus&X-Tenant=1');
      expect(response.body).to.equal(pages.get('/docs'));
    });
  });
});
