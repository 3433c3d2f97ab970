import { request } from 'node:http';
import { brotliDecompressSync, gunzipSync, zstdDecompressSync } from 'node:zlib';
import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

const units = '/api/v1/UnitsOfMeasure';
const currencies = '/api/v1/Currency';
const decode = { zstd: zstdDecompressSync, br: brotliDecompressSync, gzip: gunzipSync };
type Coding = keyof typeof decode;

interface RawResponse {
  status: number | undefined;
  headers: Record<string, string | string[] | undefined>;
  bytes: Buffer;
}

describe('compressed responses', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  before(async () => {
    for (const [tenant, name] of [
      [world.acme, 'Acme'],
      [world.globex, 'Globex'],
    ] as const) {
      await sql(
        tenant,
        `insert into units_of_measure (code, name) select 'U' || i, $1 from generate_series(1, 100) i`,
        [name],
      );
    }
    await sql(
      world.acme,
      `insert into currencies (code, name) select 'C' || i, 'Currency' from generate_series(1, 50) i`,
    );
  });

  /** `fetch` would decode the body. */
  const get = (
    path: string,
    headers: Record<string, string> = {},
    { client = admin, method = 'GET' } = {},
  ) =>
    new Promise<RawResponse>((resolve, reject) => {
      const authorization = { Authorization: `Bearer ${client.tokens?.accessToken}` };
      const sent = request(
        `${world.url}${path}`,
        { method, headers: { ...authorization, ...headers } },
        response => {
          const parts: Buffer[] = [];
          response.on('data', part => parts.push(part));
          response.on('end', () =>
            resolve({
              status: response.statusCode,
              headers: response.headers,
              bytes: Buffer.concat(parts),
            }),
          );
        },
      );
      sent.on('error', reject).end();
    });
  const accepting = (coding: string) => ({ 'Accept-Encoding': coding });

  it('a list in zstd, br or gzip has the bytes of the plain list, and is at most a sixth of it', async () => {
    const plain = await get(units);

    for (const coding of ['zstd', 'br', 'gzip'] as const) {
      for (const _ of ['compressed now', 'from memory']) {
        const coded = await get(units, accepting(coding));
        expect(coded.headers['content-encoding']).to.equal(coding);
        expect(coded.headers.vary).to.equal('Authorization, Accept, Accept-Encoding');
        expect(decode[coding](coded.bytes).equals(plain.bytes)).to.equal(true);
        expect(coded.bytes.length).to.be.below(plain.bytes.length / 6);
        expect(coded.headers['content-length']).to.equal(`${coded.bytes.length}`);
      }
    }
  });

  it('a request without Accept-Encoding gets the same response as before any compression', async () => {
    const before = await get(units);
    await get(units, accepting('br'));
    const after = await get(units);
    expect(after.headers['content-encoding']).to.equal(undefined);
    expect(after.headers.vary).to.equal('Authorization, Accept');
    expect(after.headers.etag).to.equal(before.headers.etag);
    expect(after.bytes.toString()).to.equal(before.bytes.toString());
  });

  it('the coding with the highest weight is sent; of equal weights, zstd before br before gzip', async () => {
    const expected: [string, Coding | undefined][] = [
      ['gzip, deflate, br, zstd', 'zstd'],
      ['gzip, br', 'br'],
      ['br;q=0.5, gzip;q=0.8', 'gzip'],
      ['*', 'zstd'],
      ['zstd;q=0, *;q=0.5', 'br'],
      ['identity, gzip;q=0.5', undefined],
      ['deflate, compress', undefined],
      ['gzip;q=0', undefined],
      ['', undefined],
      [';;;,q=', undefined],
    ];

    for (const [header, coding] of expected) {
      expect((await get(units, accepting(header))).headers['content-encoding'], header).to.equal(
        coding,
      );
    }
  });

  it('each coding has its own ETag, and If-None-Match with any of them gets 304', async () => {
    const tags = new Set<string>();
    for (const coding of ['identity', 'zstd', 'br', 'gzip']) {
      tags.add(`${(await get(units, accepting(coding))).headers.etag}`);
    }
    expect(tags).to.have.lengthOf(4);

    for (const tag of tags) {
      for (const coding of ['identity', 'zstd', 'br', 'gzip']) {
        const { status, bytes } = await get(units, { ...accepting(coding), 'If-None-Match': tag });
        expect(status).to.equal(304);
        expect(bytes.length).to.equal(0);
      }
    }

    const [tag = ''] = tags;
    for (const other of [tag.replace('"', '"x'), tag.replace(/"$/, '-deflate"')]) {
      expect((await get(units, { 'If-None-Match': other })).status).to.equal(200);
    }
  });

  it('a compressed list shows a change at once, and only rows of its own tenant', async () => {
    const list = async (client = admin) => {
      const { bytes, headers } = await get(units, accepting('zstd'), { client });
      // Just after a change, a list is not cached, and therefore not compressed.
      return (
        headers['content-encoding'] === 'zstd' ? zstdDecompressSync(bytes) : bytes
      ).toString();
    };

    expect(await list())
      .to.match(/Acme/)
      .and.not.match(/Globex|Fathom/);

    await admin.post(units, { Code: 'ftm', Name: 'Fathom' });
    expect(await list()).to.match(/Fathom/);

    expect(await list(await world.login(world.globex)))
      .to.match(/Globex/)
      .and.not.match(/Acme|Fathom/);
  });

  it('HEAD has the headers of GET, with the length of the compressed list', async () => {
    // Just after a change, a list is not cached, and therefore not compressed.
    const read = await eventually(async () => {
      const response = await get(units, accepting('br'));
      return response.headers['content-encoding'] === 'br' && response;
    });

    const head = await get(units, accepting('br'), { method: 'HEAD' });
    for (const name of ['content-encoding', 'content-length', 'etag', 'vary']) {
      expect(head.headers[name], name).to.equal(read.headers[name]);
    }
    expect(head.bytes).to.have.lengthOf(0);
  });

  it('single records, errors and what carries tokens are never compressed', async () => {
    const { acme } = world;
    const login = await fetch(`${world.url}/api/v1/auth/login`, {
      method: 'POST',
      headers: {
        'X-Tenant': acme.guid,
        'Content-Type': 'application/json',
        ...accepting('zstd, br, gzip'),
      },
      body: JSON.stringify(acme.admin),
    });
    expect(login.status).to.equal(200);
    expect(login.headers.get('content-encoding')).to.equal(null);

    for (const path of [`${units}/1`, `${units}/999999`, '/api/v1/auth/me', '/api/v1/AuditLog']) {
      expect(
        (await get(path, accepting('zstd, br, gzip'))).headers['content-encoding'],
        path,
      ).to.equal(undefined);
    }
  });

  it('pages, scripts and the OpenAPI document are compressed', async () => {
    for (const path of [
      '/docs',
      '/docs/openapi.json',
      '/swagger/swagger-ui-bundle.js',
      '/css/docs.css',
    ]) {
      const [plain, coded] = [await get(path), await get(path, accepting('gzip, br'))];

      expect(coded.headers['content-encoding'], path).to.equal('br');
      expect(brotliDecompressSync(coded.bytes).equals(plain.bytes)).to.equal(true);

      const again = await get(path, {
        ...accepting('gzip, br'),
        'If-None-Match': `${plain.headers.etag}`,
      });
      expect(again.status).to.equal(304);
    }
  });

  it('compressed bodies count as memory of the response cache', async () => {
    const gauge = async (): Promise<number> => {
      const text = await (
        await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`)
      ).text();
      return Number(/^response_cache_bytes (\d+)/m.exec(text)?.[1]);
    };

    await get(currencies);
    const plain = await gauge();

    const { bytes } = await get(currencies, accepting('gzip'));
    expect(bytes.length).to.be.above(0);
    expect(await gauge()).to.equal(plain + bytes.length);
  });
});
