import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { sendRaw } from '../../support/raw-http.ts';
import { useLogin, useWorld } from '../../support/world.ts';

const path = '/api/v1/OrderStatuses';

describe('addresses in responses', () => {
  const world = useWorld({ PUBLIC_URL: 'https://api.example.com' });
  const admin = useLogin(world, 'acme');

  before(async () => {
    for (const Name of ['One', 'Two']) await admin.post(path, { Name });
  });

  /** Sends a request to a host, and returns a header of the response. */
  async function headerOf(
    name: string,
    host: string | undefined,
    start: string,
    others: string[] = [],
    body = '',
  ): Promise<string | undefined> {
    const token = admin.tokens?.accessToken;
    const fields = [
      ...(host === undefined ? [] : [`Host: ${host}`]),
      `Authorization: Bearer ${token}`,
      'Connection: close',
      ...others,
    ];
    const request = `${start} HTTP/1.1\r\n${fields.join('\r\n')}\r\n\r\n${body}`;
    const { text } = await sendRaw(world.url, request);

    return new RegExp(`^${name}: (.*)\r$`, 'im').exec(text)?.[1];
  }

  const linkOf = (host: string | undefined, others: string[] = []) =>
    headerOf('Link', host, `GET ${path}?sort=Id&limit=1`, others);

  it('Link is a whole address where the request came to that of PUBLIC_URL', async () => {
    for (const host of ['api.example.com', 'API.Example.com', 'api.example.com:443']) {
      const link = await linkOf(host);

      expect(link, host).to.match(
        /^<https:\/\/api\.example\.com\/api\/v1\/OrderStatuses\?sort=Id&limit=1&after=[\w-]+>; rel="next"$/,
      );
    }
  });

  it('Link is a path where the request came to any other host, which no response repeats', async () => {
    for (const host of [
      '127.0.0.1',
      'localhost:3000',
      'api.example.com:8443',
      'api.example.com:80',
      'api.example.com.evil.test',
      'evil.test',
    ]) {
      const link = await linkOf(host, ['X-Forwarded-Host: api.example.com']);

      expect(link, host).to.match(/^<\/api\/v1\/OrderStatuses\?/);
    }
  });

  it('Location is a whole address for the host of PUBLIC_URL alone, also of a repeated request', async () => {
    const body = JSON.stringify({ Name: 'Three' });
    const fields = [
      'Content-Type: application/json',
      `Content-Length: ${body.length}`,
      'Idempotency-Key: whole-address',
    ];
    const locationAt = (host: string) => headerOf('Location', host, `POST ${path}`, fields, body);

    const first = await locationAt('127.0.0.1');
    const repeated = await locationAt('api.example.com');

    expect(first).to.match(/^\/api\/v1\/OrderStatuses\/\d+$/);
    expect(repeated).to.equal(`https://api.example.com${first}`);
  });

  it('Link of the feed of changes is a whole address, too', async () => {
    // transactions of other databases of the server may hold the feed back for a moment
    const link = await eventually(() =>
      headerOf('Link', 'api.example.com', 'GET /api/v1/Changes?limit=1'),
    );

    expect(link).to.match(/^<https:\/\/api\.example\.com\/api\/v1\/Changes\?after=/);
  });
});
