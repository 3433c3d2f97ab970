import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { describeInBrowser } from '../docs/browser.ts';
import { use } from '../support/use.ts';

interface Call {
  url: string;
  tenant: string;
  credentials: { email: string; password: string };
}

/** Starts the server of an empty page before the tests of a `describe`. */
const usePage = () =>
  use(async () => {
    const server = createServer((_request, response) =>
      response
        .setHeader('Content-Type', 'text/html')
        .end('<!doctype html><title>Front end</title>'),
    );
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return { origin, close: async () => void server.close() };
  });

describe('drill: pages of other origins', () => {
  const [listed, unlisted] = [usePage(), usePage()];

  describeInBrowser(
    'a page of another origin in a browser',
    (world, open) => {
      const callFrom = async ({ origin }: { origin: string }): Promise<unknown[]> => {
        const { page } = await open('/docs');
        await page.goto(origin);
        const { url, acme } = world();
        return page.evaluate(useApi, { url, tenant: acme.guid, credentials: acme.admin });
      };

      it('a page of a listed origin logs in, lists, creates, changes, refreshes and logs out, and reads every header it needs', async () => {
        expect(await callFrom(listed)).to.deep.equal([
          [200, 200, 201, 200, 404, 200, 204],
          true,
          'not_found',
          true,
        ]);
      });

      it('a page of an unlisted origin cannot log in', async () => {
        const error = await callFrom(unlisted).catch(String);
        expect(error).to.match(/TypeError: Failed to fetch/);
      });
    },
    () => ({ CORS_ORIGINS: listed.origin }),
  );
});

/** The calls of a front end, in the browser: this function cannot use this module. */
async function useApi({ url, tenant, credentials }: Call): Promise<unknown[]> {
  const json = { 'Content-Type': 'application/json' };
  const auth = (path: string, body: object): Promise<Response> =>
    fetch(`${url}/api/v1/auth/${path}`, {
      method: 'POST',
      headers: { ...json, 'X-Tenant': tenant },
      body: JSON.stringify(body),
    });

  const login = await auth('login', credentials);
  const { accessToken, refreshToken } = (await login.json()) as Record<string, string>;
  const headers = { ...json, Authorization: `Bearer ${accessToken}` };
  const statuses = `${url}/api/v1/EntityStatus`;

  const list = await fetch(`${statuses}?limit=1`, { headers });
  const key = { 'Idempotency-Key': crypto.randomUUID() };
  const created = await fetch(statuses, {
    method: 'POST',
    headers: { ...headers, ...key },
    body: JSON.stringify({ Title: 'From a page' }),
  });

  const changed = await fetch(`${url}${created.headers.get('Location')}`, {
    method: 'PUT',
    headers: { ...headers, 'If-Match': created.headers.get('ETag') ?? '' },
    body: JSON.stringify({ Title: 'Changed by a page' }),
  });

  const refused = await fetch(`${url}/api/v1/Nothing`, { headers });
  const refreshed = await auth('refresh', { refreshToken });
  const logout = await fetch(`${url}/api/v1/auth/logout`, { method: 'POST', headers });

  return [
    [login, list, created, changed, refused, refreshed, logout].map(({ status }) => status),
    /rel="next"/.test(list.headers.get('Link') ?? ''),
    ((await refused.json()) as { code: string }).code,
    Number(list.headers.get('RateLimit-Remaining')) > 0,
  ];
}
