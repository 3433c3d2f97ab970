import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { newestAudit } from '../../sales/resources/expect.ts';
import type { ApiResponse } from '../../support/client.ts';
import { rawRequest, sendRaw } from '../../support/raw-http.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';
const login = '/api/v1/auth/login';
const kibibyte = 1_024;
const uncached = { 'Cache-Control': 'no-cache' };

function expectProblem(response: ApiResponse, status: number, code: string): void {
  expect(response.status).to.equal(status);
  expect(response.headers.get('content-type')).to.match(/^application\/problem\+json\b/);
  expect(response.body).to.include({ status, code });
}

/** Returns `body` as JSON, padded with spaces to exactly this number of bytes. */
function padded(body: object, bytes: number): string {
  return JSON.stringify(body).padEnd(bytes);
}

describe('request bodies', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let named: Record<string, string>;

  before(async () => {
    named = { 'X-Tenant': world.acme.guid };
  });
  afterEach(
    'the service still responds, and the data of the other tenant is unchanged',
    async () => {
      expect((await admin.get(`${path}/1`)).status).to.equal(200);
      expect((await globex.get(path, uncached)).body).to.have.length(3);
    },
  );

  const readStored = async (): Promise<object[]> => (await admin.get(path, uncached)).body;

  /** Runs `requests`, and fails if they wrote a record or an audit entry. */
  async function expectNoWrites(requests: () => Promise<void>): Promise<void> {
    const [rows, audited] = [await readStored(), await newestAudit(admin)];
    await requests();
    expect(await readStored()).to.deep.equal(rows);
    expect(await newestAudit(admin)).to.equal(audited);
  }

  describe('missing and empty bodies', () => {
    it('the response to a missing or empty body names every required field', () =>
      expectNoWrites(async () => {
        for (const body of [undefined, '', {}, '{}', ' {\r\n\t} ', '{"other":1}']) {
          const created = await admin.post(path, body);
          expectProblem(created, 400, 'validation_failed');
          expect(created.body.errors).to.deep.equal({ Title: ['is required'] });
          const changed = await admin.put(`${path}/1`, body);
          expectProblem(changed, 400, 'validation_failed');
          expect(changed.body.errors).to.have.all.keys('Title', 'Weighting');
          const loggedIn = await world.anonymous.post(login, body, named);
          expectProblem(loggedIn, 400, 'validation_failed');
          expect(loggedIn.body.errors).to.have.all.keys('email', 'password');
          const refreshed = await world.anonymous.post('/api/v1/auth/refresh', body, named);
          expectProblem(refreshed, 400, 'validation_failed');
          expect(refreshed.body.errors).to.have.all.keys('refreshToken');
        }
      }));

    it('an empty chunked body is treated as no body', async () => {
      const { statuses, text } = await sendRaw(
        world.url,
        rawRequest(
          `POST ${path}`,
          [
            `Authorization: Bearer ${admin.tokens?.accessToken}`,
            'Content-Type: application/json',
            'Transfer-Encoding: chunked',
            'Connection: close',
          ],
          '0\r\n\r\n',
        ),
      );

      expect(statuses).to.deep.equal([400]);
      expect(text).to.match(/"code":"validation_failed"/);
    });

    it('a route without a body ignores the body that a client sends', async () => {
      const user = await world.login(world.acme);
      const response = await user.post('/api/v1/auth/logout', 'not even JSON', {
        'Content-Type': 'text/plain',
      });
      expect(response.status).to.equal(204);
      expect((await user.get(path)).status).to.equal(401);
    });
  });

  describe('content types and encodings', () => {
    const types = [
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'text/json',
      'application/problem+json',
      'application/vnd.api+json',
      'application/jsonp',
      'application/json, text/plain',
      'application/json; charset=utf-16',
      'application/json; charset=iso-8859-1',
      'application/json; charset=utf-7',
      'application/json; charset=utf-8; charset=utf-16',
      '*/*',
      'json',
    ];
    it('a body of another content type than JSON in UTF-8 is rejected with 415', () =>
      expectNoWrites(async () => {
        for (const type of types) {
          const response = await admin.post(
            path,
            { Title: 'Of another type' },
            { 'Content-Type': type },
          );
          expectProblem(response, 415, 'unsupported_media_type');
        }
        const bytes = new TextEncoder().encode('{"Title":"Of no type"}');
        expectProblem(
          await admin.post(path, bytes, { 'Content-Type': '' }),
          415,
          'unsupported_media_type',
        );
      }));

    it('every spelling of the content type JSON in UTF-8 is accepted', async () => {
      for (const type of [
        'application/json',
        'application/json;',
        'application/json;charset=utf-8',
        'application/json; charset=UTF-8',
        'Application/JSON ; charset="utf-8"',
      ]) {
        expect(
          (await admin.post(path, { Title: type }, { 'Content-Type': type })).status,
          type,
        ).to.equal(201);
      }
    });

    it('a compressed body is rejected with 415 before it is decompressed', () =>
      expectNoWrites(async () => {
        const bomb = gzipSync(Buffer.alloc(50 * kibibyte * kibibyte, ' '));
        const good = gzipSync('{"Title":"Packed"}');
        const bodies: [string, Uint8Array][] = [
          ['gzip', good],
          ['gzip', good.subarray(0, 12)],
          ['GZIP', good],
          ['x-gzip', good],
          ['gzip, gzip', gzipSync(good)],
          ['identity, gzip', good],
          ['deflate', good],
          ['br', good],
          ['zstd', good],
          ['zstd9', good],
          ['gzip', bomb],
        ];
        for (const [encoding, body] of bodies) {
          const response = await admin.post(path, body, { 'Content-Encoding': encoding });
          expectProblem(response, 415, 'unsupported_media_type');
        }
      }));

    it('a body with Content-Encoding: identity, in any case, is accepted', async () => {
      for (const coding of ['identity', 'Identity', 'IDENTITY']) {
        const response = await admin.post(
          path,
          { Title: `Unpacked: ${coding}` },
          { 'Content-Encoding': coding },
        );
        expect(response.status, coding).to.equal(201);
      }
    });
  });

  describe('size limits of bodies', () => {
    it('a body above 64 KiB is rejected with 413, and one of 64 KiB is accepted', async () => {
      const taken = await admin.post(path, padded({ Title: 'Of 64 KiB' }, 64 * kibibyte));
      expect(taken.status).to.equal(201);

      await expectNoWrites(async () => {
        const response = await admin.post(path, padded({ Title: 'Larger' }, 64 * kibibyte + 1));
        expectProblem(response, 413, 'payload_too_large');
        expect(response.headers.get('connection')).to.equal('close');
        // A client would wait for that time, and send the body again.
        expect(response.headers.get('ratelimit-reset')).to.equal(null);
        expect(response.headers.get('ratelimit')).to.include('"Global";r=');
        expectProblem(
          await admin.put(`${path}/1`, padded({ Title: 'Larger' }, 64 * kibibyte + 1)),
          413,
          'payload_too_large',
        );
      });
    });

    it('a body of login or refresh above 8 KiB is rejected with 413', async () => {
      const fits = await world.anonymous.post(login, padded(world.acme.admin, 8 * kibibyte), named);
      expect(fits.status).to.equal(200);

      const response = await world.anonymous.post(
        login,
        padded(world.acme.admin, 8 * kibibyte + 1),
        named,
      );
      expectProblem(response, 413, 'payload_too_large');

      const refresh = { refreshToken: admin.tokens?.refreshToken };
      const refreshed = await world.anonymous.post(
        '/api/v1/auth/refresh',
        padded(refresh, 8 * kibibyte + 1),
        named,
      );
      expectProblem(refreshed, 413, 'payload_too_large');
    });

    it('a chunked body above the limit is rejected with 413', async () => {
      for (const [target, limit] of [
        [path, 64],
        [login, 8],
      ] as const) {
        const size = (limit * kibibyte + 1).toString(16);

        const { statuses, text, closed } = await sendRaw(
          world.url,
          rawRequest(
            `POST ${target}`,
            [
              ...(target === login
                ? [`X-Tenant: ${world.acme.guid}`]
                : [`Authorization: Bearer ${admin.tokens?.accessToken}`]),
              'Content-Type: application/json',
              'Transfer-Encoding: chunked',
            ],
            `${size}\r\n${' '.repeat(limit * kibibyte + 1)}\r\n0\r\n\r\n`,
          ),
        );

        expect(statuses).to.deep.equal([413]);
        expect(text).to.match(/"code":"payload_too_large"/);
        expect(closed).to.equal(true);
      }
    });

    it('a client that is still sending its body receives the 413 response', async () => {
      for (let attempt = 0; attempt < 5; attempt++) {
        expectProblem(
          await admin.post(path, ' '.repeat(1_000 * kibibyte)),
          413,
          'payload_too_large',
        );
      }
    });
  });

  describe('malformed bodies', () => {
    const malformed: Record<string, string> = {
      'an unfinished object': '{"Title":"x"',
      'a trailing comma': '{"Title":"x",}',
      'a comment': '{"Title":"x"/* why */}',
      'a line comment': '{"Title":"x"} // why',
      'single quotes': `{'Title':'x'}`,
      'a name without quotes': '{Title:"x"}',
      NaN: '{"Title":"x","Weighting":NaN}',
      Infinity: '{"Title":"x","Weighting":Infinity}',
      'a hexadecimal number': '{"Title":"x","Weighting":0x1}',
      'a leading zero': '{"Title":"x","Weighting":01}',
      'a leading plus': '{"Title":"x","Weighting":+1}',
      'a line feed in a string': '{"Title":"x\ny"}',
      'a tab in a string': '{"Title":"x\ty"}',
      'an unknown escape sequence': '{"Title":"\\x41"}',
      'an incomplete escape sequence': '{"Title":"\\u00"}',
      'two documents': '{"Title":"x"}{"Title":"y"}',
      undefined: '{"Title":undefined}',
      'a no-break space between tokens': '{"Title":\u00a0"x"}',
      'only white space': '  \n ',
      'a form': 'Title=x',
      XML: '<Title>x</Title>',
      'an array': '[{"Title":"x"}]',
      'an empty array': '[]',
      'a string': '"Title"',
      'a number': '42',
      null: 'null',
      true: 'true',
    };
    for (const [name, body] of Object.entries(malformed)) {
      it(`a body is rejected with 400 for ${name}`, () =>
        expectNoWrites(async () => {
          expectProblem(await admin.post(path, body), 400, 'malformed_json');
          expectProblem(await admin.put(`${path}/1`, body), 400, 'malformed_json');
          expectProblem(await world.anonymous.post(login, body, named), 400, 'malformed_json');
        }));
    }

    it('a body with 30,000 nested brackets is rejected with 400, at the root and inside a field', () =>
      expectNoWrites(async () => {
        const [open, close] = ['['.repeat(30_000), ']'.repeat(30_000)];
        const objects = '{"a":'.repeat(10_000);
        for (const body of [open, open + close, `{"Title":${open}`, objects]) {
          expectProblem(await admin.post(path, body), 400, 'malformed_json');
        }
        const response = await admin.post(path, `{"Title":${open}${close}}`);
        expect(response.status).to.equal(400);
        expect(response.body.code).to.be.oneOf(['validation_failed', 'malformed_json']);
      }));

    it('a body may have 100 levels of lists and objects, also in fields that are ignored, and no more', () =>
      expectNoWrites(async () => {
        const nested = (levels: number) =>
          `{"Title":"","Other":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`;
        expectProblem(await admin.post(path, nested(100)), 400, 'validation_failed');
        for (const levels of [101, 30_000]) {
          expectProblem(await admin.post(path, nested(levels)), 400, 'malformed_json');
          expectProblem(await admin.put(`${path}/1`, nested(levels)), 400, 'malformed_json');
        }
      }));

    it('a body with two spellings of a field, each 15,000 brackets deep, is rejected with 400', () =>
      expectNoWrites(async () => {
        const value = '['.repeat(15_000) + ']'.repeat(15_000);
        const response = await admin.post(path, `{"Title":${value},"title":${value}}`);
        expect(response.status).to.equal(400);
      }));

    it('a body with bytes that are not UTF-8 is rejected with 400', () =>
      expectNoWrites(async () => {
        const around = (...bytes: number[]) =>
          Buffer.concat([Buffer.from('{"Title":"x'), Buffer.from(bytes), Buffer.from('"}')]);
        for (const body of [
          around(0xff),
          around(0xc3), // the first byte of a letter of two bytes
          around(0xc0, 0xaf), // the overlong encoding of a slash
          around(0xed, 0xa0, 0x80), // a lone surrogate
          around(0xf4, 0x90, 0x80, 0x80), // above U+10FFFF
          around(0xe9), // Latin-1
          Buffer.from('{"Title":"x"}', 'utf16le'),
          Buffer.concat([Buffer.from('{"Title":"x"}'), Buffer.from([0xc3])]),
        ]) {
          expectProblem(await admin.post(path, body), 400, 'malformed_json');
        }
      }));

    it('a body never changes Object.prototype', async () => {
      await expectNoWrites(async () => {
        for (const body of [
          '{"__proto__":{"isAdmin":true,"Title":"x"}}',
          '{"\\u005f_proto__":{"isAdmin":true,"Title":"x"}}',
          '{"constructor":{"prototype":{"isAdmin":true,"Title":"x"}}}',
        ]) {
          expect((await admin.post(path, body)).status).to.equal(400);
        }
      });

      const response = await admin.post(
        path,
        '{"Title":"Built","constructor":{"prototype":{"isAdmin":true}}}',
      );
      expect(response.status).to.equal(201);
      expect(response.body).to.have.all.keys('Id', 'Title', 'Weighting', 'CreatedAt');
      expect(({} as Record<string, unknown>).isAdmin).to.equal(undefined);
      expect(({} as Record<string, unknown>).Title).to.equal(undefined);
    });

    it('a byte order mark before the JSON causes no server error and is not stored', async () => {
      const response = await admin.post(
        path,
        Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from('{"Title":"Marked"}')]),
      );
      expect(response.status).to.be.oneOf([201, 400]);
      if (response.status === 201) expect(response.body.Title).to.equal('Marked');
      else expectProblem(response, 400, 'malformed_json');
    });

    it('no log line and no response contains the password of an invalid body', async () => {
      const secret = 'Hunter2-Hunter2-Hunter2';
      const before = world.logs.length;
      const bodies = [
        `{"email":"a@acme.test","password":"${secret}"`,
        `{"email":"a@acme.test","password":'${secret}'}`,
        `{"password":"${secret}",}`,
        `["${secret}"]`,
        `"${secret}"`,
        `{"__proto__":{"password":"${secret}"}}`,
        `${'['.repeat(5_000)}"${secret}"`,
        Buffer.concat([Buffer.from(`{"password":"${secret}`), Buffer.from([0xff, 0x22, 0x7d])]),
        `{"email":"a@acme.test","password":["${secret}"]}`,
        `{"email":"a@acme.test","password":"${secret}"}`,
      ];

      for (const body of bodies) {
        const response = await world.anonymous.post(login, body, named);
        expect(response.status).to.be.oneOf([400, 401]);
        expect(JSON.stringify(response.body)).not.to.include(secret);
      }

      await world.anonymous.post(login, `password=${secret}`, {
        ...named,
        'Content-Type': 'text/plain',
      });
      await world.anonymous.post(`${login}?password=${secret}`, {}, named);
      await world.anonymous.get(`/api/v1/${secret}`, named);

      expect(world.logs.length).to.be.greaterThan(before + bodies.length);
      expect(world.logs.filter(line => line.includes(secret))).to.deep.equal([]);
    });
  });

  describe('names of fields', () => {
    it('a body may name its fields in PascalCase or in camelCase', async () => {
      const created = await admin.post(path, { title: 'Spelled small', weighting: 5 });
      expect(created.status).to.equal(201);
      expect(created.body).to.include({ Title: 'Spelled small', Weighting: 5 });
      const changed = await admin.put(`${path}/${created.body.Id}`, { title: 'Again' });
      expect(changed.body).to.include({ Title: 'Again', Weighting: 5 });
    });

    it('a field in any other spelling is ignored', () =>
      expectNoWrites(async () => {
        for (const name of ['TITLE', 'tITLE', 'Title ', ' Title', 'Títle', 'title\u0000']) {
          expectProblem(await admin.post(path, { [name]: 'x' }), 400, 'validation_failed');
        }
        expectProblem(
          await world.anonymous.post(
            login,
            { Email: world.acme.admin.email, Password: world.acme.admin.password },
            named,
          ),
          400,
          'validation_failed',
        );
      }));

    it('a body with two spellings of one field and different values is rejected with 400', () =>
      expectNoWrites(async () => {
        const response = await admin.post(path, { Title: 'One', title: 'Another' });
        expectProblem(response, 400, 'validation_failed');
        expect(response.body.errors).to.have.all.keys('Title');
        expect(JSON.stringify(response.body)).not.to.match(/"One"|Another/);
        const changed = await admin.put(`${path}/1`, { Weighting: 1, weighting: 2 });
        expect(changed.body.errors).to.have.all.keys('Weighting');
      }));

    it('two spellings of one field are accepted if their values are equal or one spelling is ignored', async () => {
      expect((await admin.post(path, { Title: 'Same', title: 'Same' })).status).to.equal(201);
      const response = await admin.post(path, { Title: 'Counts', TITLE: 'Does not' });
      expect(response.body.Title).to.equal('Counts');
    });

    it('when a body repeats a name, its last value is validated, stored, returned and audited', async () => {
      const response = await admin.post(
        path,
        '{"Title":"","Title":"AA","Title":"BB","Weighting":"x","Weighting":3}',
      );
      expect(response.status).to.equal(201);
      expect(response.body).to.include({ Title: 'BB', Weighting: 3 });

      const [row] = await sql(
        world.acme,
        'select title, weighting from entity_statuses order by id desc limit 1',
      );
      expect(row).to.deep.equal({ title: 'BB', weighting: 3 });

      const [entry] = await sql<{ after: object }>(
        world.acme,
        'select after from audit_log order by id desc limit 1',
      );
      expect(entry?.after).to.include({ title: 'BB', weighting: 3 });

      expectProblem(await admin.post(path, '{"Title":"AA","Title":""}'), 400, 'validation_failed');
    });

    it('unknown fields and fields that the service sets itself are ignored', async () => {
      const response = await admin.post(path, {
        Title: 'Own',
        Id: 1,
        id: 2,
        CreatedAt: '2001-01-01T00:00:00Z',
        IsDeleted: true,
        DeletedAt: '2001-01-01T00:00:00Z',
        tenantId: world.globex.id,
        tenant_guid: world.globex.guid,
        Unknown: { deep: ['x'] },
      });
      expect(response.status).to.equal(201);
      expect(response.body).to.have.all.keys('Id', 'Title', 'Weighting', 'CreatedAt');
      expect(response.body.Id).to.be.greaterThan(3);
      expect(Date.parse(response.body.CreatedAt)).to.be.closeTo(Date.now(), 60_000);

      const { Id: id, CreatedAt: createdAt } = response.body;
      const changed = await admin.put(`${path}/${id}`, {
        Title: 'Owned',
        Id: 1,
        CreatedAt: '2001-01-01T00:00:00Z',
      });
      expect(changed.body).to.deep.equal({
        ...response.body,
        Title: 'Owned',
        Id: id,
        CreatedAt: createdAt,
      });
    });
  });

  it('the response to an invalid body names every invalid field and repeats none of the values', () =>
    expectNoWrites(async () => {
      const response = await admin.post(path, {
        Title: ['<script>alert(1)</script>'],
        Weighting: '5000000001',
      });
      expectProblem(response, 400, 'validation_failed');
      expect(response.body.errors).to.have.all.keys('Title', 'Weighting');
      for (const messages of Object.values<string[]>(response.body.errors)) {
        for (const message of messages) expect(message).to.be.a('string').and.not.equal('');
      }
      expect(JSON.stringify(response.body)).not.to.match(/script|5000000001/);
    }));
});
