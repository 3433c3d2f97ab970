import { expect } from 'chai';
import { resources } from '../../../src/sales/resources/index.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { createWorld, sql, type World } from '../../support/world.ts';
import { createReferences, type Example, examples } from './examples.ts';
import { expectRefused, newestAudit } from './expect.ts';
import type { References } from './field-values.ts';

type Body = Record<string, unknown>;
const statuses = '/api/v1/EntityStatus';
const tagOf = ({ headers }: ApiResponse): string => headers.get('etag') ?? '';

describe('If-Match', () => {
  let world: World;
  let admin: Client;
  let refs: References;

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
    refs = await createReferences(admin);
  });
  after(() => world.close());

  for (const { name } of resources) {
    const example = examples[name] as Example;
    const { path, key } = example;
    const byCode = key !== 'Id';
    const pathOf = (record: Body): string =>
      byCode ? `${path}/code/${encodeURIComponent(String(record[key]))}` : `${path}/${record[key]}`;
    const put = (record: Body, body: Body, headers = {}): Promise<ApiResponse> =>
      admin.put(
        byCode ? path : pathOf(record),
        byCode ? { ...body, [key]: record[key] } : body,
        headers,
      );

    it(`${name}: the responses to POST and PUT have the ETag of the record that GET returns`, async () => {
      const created = await admin.post(path, example.first(refs));
      expect(tagOf(created)).to.match(/^"[\w-]{27}(\.[\w-]{27})?"$/);
      expect(tagOf(created)).to.equal(tagOf(await admin.get(pathOf(created.body))));
      const changed = await put(created.body, example.second(refs));
      expect(changed.status).to.equal(200);
      expect(tagOf(changed)).to.not.equal(tagOf(created));
      expect(tagOf(changed)).to.equal(tagOf(await admin.get(pathOf(created.body))));
      expect(changed.headers.get('cache-control')).to.equal('no-store');
    });

    it(`${name}: PUT and DELETE change the record that If-Match names, and no later version of it`, async () => {
      const created = await admin.post(path, example.first(refs));
      const first = { 'If-Match': tagOf(created) };

      const changed = await put(created.body, example.second(refs), first);
      expect(changed.status).to.equal(200);

      const audited = await newestAudit(admin);
      expectRefused(
        await put(created.body, example.first(refs), first),
        412,
        'precondition_failed',
      );
      expectRefused(await admin.delete(pathOf(created.body), first), 412, 'precondition_failed');
      expect((await admin.get(pathOf(created.body))).body).to.deep.equal(changed.body);
      expect(await newestAudit(admin)).to.equal(audited);

      expect(
        (await admin.delete(pathOf(created.body), { 'If-Match': tagOf(changed) })).status,
      ).to.equal(204);
    });

    it(`${name}: a missing record gets the same response with If-Match and without`, async () => {
      const missing = byCode ? { [key]: 'missing' } : { [key]: 999_999 };

      for (const condition of ['*', '"stale"']) {
        const [plain, conditional] = [
          await put(missing, example.second(refs)),
          await put(missing, example.second(refs), { 'If-Match': condition }),
        ];

        expect(conditional.status).to.equal(plain.status);
        expect(conditional.body.code).to.equal(plain.body.code);
        expect(conditional.status).to.be.within(400, 404);
      }
    });
  }

  it('If-Match accepts a list, a tag of a compressed body, one that a proxy made weak, and *', async () => {
    const { body } = await admin.post(statuses, { Title: 'Condition' });
    const path = `${statuses}/${body.Id}`;
    const current = async () => tagOf(await admin.get(path, { 'Accept-Encoding': 'identity' }));
    let weighting = 0;
    const putWith = (condition: string) =>
      admin.put(path, { Weighting: ++weighting }, { 'If-Match': condition });
    for (const condition of [
      (tag: string) => `"other", ${tag}`,
      (tag: string) => tag.replace(/"$/, '-br"'),
      () => '*',
      (tag: string) => `  ${tag} ,`,
      (tag: string) => `W/${tag}`,
      (tag: string) => `W/"other", W/${tag.replace(/"$/, '-gzip"')}`,
    ]) {
      expect((await putWith(condition(await current()))).status).to.equal(200);
    }

    for (const condition of [
      (tag: string) => tag.replace(/"$/, '-deflate"'),
      () => '""',
      () => 'W/"other"',
    ]) {
      expectRefused(await putWith(condition(await current())), 412, 'precondition_failed');
    }
  });

  it('a condition that is no tag is refused by its header, on every change', async () => {
    const created = await admin.post(statuses, { Title: 'Unquoted' });
    const path = `${statuses}/${created.body.Id}`;
    const unquoted = tagOf(created).replaceAll('"', '');

    for (const condition of [
      unquoted,
      `W/${unquoted}`,
      `${tagOf(created)} x`,
      ',',
      '',
      '"open',
      'x'.repeat(5_000),
    ]) {
      for (const header of ['If-Match', 'If-None-Match']) {
        const headers = { [header]: condition };
        for (const response of [
          await admin.put(path, { Title: 'Changed' }, headers),
          await admin.patch(path, { Title: 'Changed' }, headers),
          await admin.delete(path, headers),
        ]) {
          expectRefused(response, 400, 'invalid_request');
          expect(response.body.detail).to.match(new RegExp(`^${header} must be an ETag`));
        }
      }
    }

    expect((await admin.get(path)).body).to.deep.equal(created.body);
  });

  it('a change is refused with 412 if If-None-Match names the record, or is *, and made if it names another', async () => {
    const created = await admin.post(statuses, { Title: 'Unless' });
    const path = `${statuses}/${created.body.Id}`;
    const tag = tagOf(created);

    for (const condition of ['*', tag, `W/${tag}`, `"other", ${tag}`]) {
      const headers = { 'If-None-Match': condition };
      for (const response of [
        await admin.put(path, { Title: 'Changed' }, headers),
        await admin.patch(path, { Title: 'Changed' }, headers),
        await admin.delete(path, headers),
      ]) {
        expectRefused(response, 412, 'precondition_failed');
      }
    }

    expect((await admin.get(path)).body).to.deep.equal(created.body);
    const both = { 'If-Match': tag, 'If-None-Match': '"other"' };
    expect((await admin.put(path, { Title: 'Changed' }, both)).status).to.equal(200);

    expectRefused(
      await admin.put(`${statuses}/99999`, { Title: 'New' }, { 'If-None-Match': '*' }),
      404,
      'not_found',
    );
    const country = { CountryCode: refs.countryCode, CountryName: 'Changed' };
    const replaced = await admin.put('/api/v1/Countries', country, { 'If-None-Match': '*' });
    expectRefused(replaced, 412, 'precondition_failed');
  });

  it('of 10 concurrent changes with the same If-Match, exactly one is made', async () => {
    const created = await admin.post(statuses, { Title: 'Contested' });
    const audited = await newestAudit(admin);

    const responses = await Promise.all(
      Array.from({ length: 10 }, (_, i) =>
        admin.put(
          `${statuses}/${created.body.Id}`,
          { Weighting: i + 1 },
          { 'If-Match': tagOf(created) },
        ),
      ),
    );

    expect(responses.map(({ status }) => status).sort()).to.deep.equal([
      200,
      ...Array(9).fill(412),
    ]);
    expect(await newestAudit(admin)).to.equal(audited + 1);
  });

  it('a change by psql makes a tag outdated at once, also while the record is cached', async () => {
    const created = await admin.post(statuses, { Title: 'Renamed' });
    const path = `${statuses}/${created.body.Id}`;
    expect(tagOf(await admin.get(path))).to.equal(tagOf(created));

    await sql(world.acme, `update entity_statuses set weighting = 99 where id = $1`, [
      created.body.Id,
    ]);

    expectRefused(
      await admin.put(path, { Title: 'Lost' }, { 'If-Match': tagOf(created) }),
      412,
      'precondition_failed',
    );
  });

  it('clients that read, add one and write with If-Match, in any order, lose no update', async () => {
    const created = await admin.post(statuses, { Title: 'Counter', Weighting: 0 });
    const path = `${statuses}/${created.body.Id}`;
    const clients = [admin, await world.login(world.acme), await world.login(world.acme)];
    let added = 0;

    await Promise.all(
      clients.map(async client => {
        for (let i = 0; i < 40; i++) {
          const read = await client.get(path);
          const { status } = await client.put(
            path,
            { Weighting: read.body.Weighting + 1 },
            { 'If-Match': tagOf(read) },
          );

          expect(status).to.be.oneOf([200, 412]);
          if (status === 200) added++;
        }
      }),
    );

    expect(added).to.be.above(0);
    expect((await admin.get(path)).body.Weighting).to.equal(added);
  });
});

describe('strict handling', () => {
  let world: World;
  let admin: Client;
  const strict = { Prefer: 'handling=strict' };

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
  });
  after(() => world.close());

  it('Prefer: handling=strict refuses unknown fields by name, and without it they are ignored', async () => {
    const body = { Title: 'Strict', Wieghting: 5, extra: null, __proto__x: 1 };
    const refused = await admin.post(statuses, body, strict);
    expectRefused(refused, 400, 'validation_failed', ['Wieghting', 'extra', '__proto__x']);
    expect(refused.body.errorCodes.extra).to.deep.equal([{ code: 'unknown' }]);
    expect(refused.headers.get('preference-applied')).to.equal('handling=strict');

    const created = await admin.post(statuses, body);
    expect(created.status).to.equal(201);
    expect(created.headers.get('preference-applied')).to.equal(null);

    expectRefused(
      await admin.put(`${statuses}/${created.body.Id}`, body, strict),
      400,
      'validation_failed',
    );
  });

  it('Prefer: handling=strict names unknown and invalid fields together', async () => {
    const refused = await admin.post(statuses, { Title: 5, Wieghting: 5 }, strict);
    expectRefused(refused, 400, 'validation_failed', ['Title', 'Wieghting']);
  });

  it('Prefer: handling=strict accepts all fields of the contract, in both spellings', async () => {
    for (const body of [
      { Title: 'One', Weighting: 1 },
      { title: 'Two', weighting: 2 },
    ]) {
      const { status, headers } = await admin.post(statuses, body, strict);
      expect(status).to.equal(201);
      expect(headers.get('preference-applied')).to.equal('handling=strict');
    }
  });

  it('Prefer: handling=strict refuses unknown parameters by name, of every route', async () => {
    for (const [path, unknown] of [
      [`${statuses}?limt=5`, 'limt'],
      ['/api/v1/Entities?limit=5&Limit=5', 'Limit'],
      [`${statuses}/1?expand=all`, 'expand'],
      ['/api/v1/auth/me?x', 'x'],
    ] as const) {
      expectRefused(await admin.get(path, strict), 400, 'validation_failed', [unknown]);
      expect((await admin.get(path)).status, path).to.equal(200);
    }

    expect((await admin.get('/api/v1/Entities?limit=5', strict)).status).to.equal(200);
  });

  it('a caller of scope Self may send strict requests that assign their own entity', async () => {
    const { body } = await admin.post('/api/v1/Entities', { Name: 'Own', EntityType: 'customer' });
    const self = await world.loginAs(world.acme, {
      permissions: ['full.manage'],
      scope: 'Self',
      entityId: body.Id,
    });
    const created = await self.post('/api/v1/Activity', { ActivityCode: 1, EntityId: 999 }, strict);
    expect(created.status).to.equal(201);
    expect(created.body.EntityId).to.equal(body.Id);
  });

  it('Prefer is read among other preferences, and other values of handling change nothing', async () => {
    for (const [prefer, status] of [
      ['respond-async, handling=strict', 400],
      ['handling="strict"; wait=10', 400],
      ['HANDLING = STRICT', 400],
      ['handling=lenient', 200],
      ['strict', 200],
      ['xhandling=strict', 200],
    ] as const) {
      expect((await admin.get(`${statuses}?x=1`, { Prefer: prefer })).status, prefer).to.equal(
        status,
      );
    }
  });
});
