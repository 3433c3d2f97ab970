import { expect } from 'chai';
import { permissions } from '../../src/control/permissions.ts';
import type { Client } from '../support/client.ts';
import { document } from '../support/contract.ts';
import { eventually } from '../support/eventually.ts';
import { controlSql, useLogin, useWorld } from '../support/world.ts';

const promotions = '/api/v1/Promotions';
const options = '/api/v1/SystemOptions';
/** A word in every text that a caller of the own entity must not read. */
const secret = 'zzsecret';

interface Promotion {
  readonly Id: number;
  readonly PromoCode: string;
  readonly EntityIds: number[];
}

describe('the data of the own entity', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  /** Of scope `Self`, without a permission, with all, and of scope `All`, with all. */
  let bare: Client;
  let self: Client;
  let all: Client;
  let ownEntity: number;
  let foreignEntity: number;

  before(async () => {
    const createEntity = async (Name: string): Promise<number> =>
      (await admin.post('/api/v1/Entities', { Name, EntityType: 'customer' })).body.Id;
    ownEntity = await createEntity('Own');
    foreignEntity = await createEntity(`${secret} Foreign`);

    const own = { scope: 'Self', entityId: ownEntity } as const;
    bare = await world.loginAs(world.acme, own);
    self = await world.loginAs(world.acme, { ...own, permissions: [...permissions] });
    all = await world.loginAs(world.acme, { permissions: [...permissions] });
    await controlSql(
      world,
      `update users set first_name = ?, last_name = ? where tenant_id = ? and scope = 'All'`,
      [secret, secret, world.acme.id],
    );

    for (const [code, EntityIds] of [
      ['EVERYONE', []],
      ['OWNONLY', [ownEntity]],
      ['BOTH', [foreignEntity, ownEntity]],
      [`${secret}2`, [foreignEntity]],
    ] as const) {
      const created = await createPromotion(code, EntityIds);
      expect(created.status).to.equal(201);
    }
    await admin.post(options, { SystemOptionTypeId: 1, Value: `${secret} option` });
    for (const EntityId of [ownEntity, foreignEntity]) {
      const Comment = EntityId === ownEntity ? 'own' : secret;
      await admin.post('/api/v1/Activity', { ActivityCode: 1, EntityId, Comment });
    }
    const globex = await world.login(world.globex);
    await globex.post(promotions, promotionOf('GLOBEX', []));
  });

  const promotionOf = (PromoCode: string, EntityIds: readonly number[]) => ({
    PromoCode,
    Name: PromoCode,
    DiscountType: 'Percentage',
    DiscountValue: 12.5,
    EntityIds,
  });
  const createPromotion = (code: string, EntityIds: readonly number[]) =>
    admin.post(promotions, promotionOf(code, EntityIds));

  async function findPromotion(code: string): Promise<Promotion> {
    return (await all.get(`${promotions}/code/${code}`)).body;
  }

  /** The promotions in a list, as `CODE: ids`. */
  const summaryOf = (list: Promotion[]): string[] =>
    list.map(({ PromoCode, EntityIds }) => `${PromoCode}: ${EntityIds.join()}`).sort();

  const ofAll = () => [
    `BOTH: ${[foreignEntity, ownEntity].join()}`,
    'EVERYONE: ',
    `OWNONLY: ${ownEntity}`,
    `${secret}2: ${foreignEntity}`,
  ];
  const ofSelf = () => [`BOTH: ${ownEntity}`, 'EVERYONE: ', `OWNONLY: ${ownEntity}`];

  const lists: Record<string, string> = {
    'the plain list': promotions,
    'a page': `${promotions}?sort=PromoCode&limit=10`,
    'a search': `${promotions}?q=e`,
    'a filter': `${promotions}?filter[DiscountValue][gte]=1`,
  };

  for (const [title, path] of Object.entries(lists)) {
    it(`${title} of promotions has those of the own entity, and of their ids the own one, before and after a caller of scope All has read it`, async () => {
      for (const [first, second] of [
        [all, self],
        [self, all],
      ] as const) {
        for (const client of [first, second, first, second]) {
          const expected = client === all ? ofAll() : ofSelf();
          const found =
            title === 'a search'
              ? expected.filter(text => /e/i.test(text.split(':')[0] ?? ''))
              : expected;

          const { status, body } = await client.get(path);

          expect(status).to.equal(200);
          expect(summaryOf(body)).to.deep.equal(found);
        }
      }
    });
  }

  it('a promotion of another entity is 404 by id and by code, and one of several has the own id only, whoever has read it before', async () => {
    const both = await findPromotion('BOTH');
    const foreign = await findPromotion(`${secret}2`);

    for (const client of [all, self, all, bare]) {
      const ids = client === all ? [foreignEntity, ownEntity] : [ownEntity];
      for (const path of [`${promotions}/${both.Id}`, `${promotions}/code/both`]) {
        expect((await client.get(path)).body.EntityIds).to.deep.equal(ids);
      }
      const status = client === all ? 200 : 404;
      for (const path of [`${promotions}/${foreign.Id}`, `${promotions}/code/${secret}2`]) {
        expect((await client.get(path)).status).to.equal(status);
      }
    }

    const used = `${promotions}/${foreign.Id}/entity/${ownEntity}/used`;
    expect((await self.get(used)).status).to.equal(404);
    expect((await self.post(used)).status).to.equal(404);
    expect((await self.get(`${promotions}/${both.Id}/entity/${ownEntity}/used`)).status).to.equal(
      200,
    );
  });

  it('CSV, counts and tags of promotions are those of what the caller reads', async () => {
    const csv = await self.get(promotions, { Accept: 'text/csv' });
    const row = String(csv.body)
      .split('\r\n')
      .find(line => line.includes('BOTH'));
    expect(row).to.include(`,[${ownEntity}],`);
    expect(csv.body).not.to.include(secret);

    const counted = await self.get(`${promotions}?sort=PromoCode`, { Prefer: 'count=exact' });
    expect(counted.headers.get('content-range')).to.equal('items 0-2/3');

    const both = await findPromotion('BOTH');
    const [tagged] = (await self.get(`${promotions}?filter[PromoCode]=BOTH&include=etag`)).body;
    const single = await self.get(`${promotions}/${both.Id}`);
    expect(tagged.ETag).to.equal(single.headers.get('etag'));
  });

  it('a caller of scope Self makes, changes and deletes no promotion, whatever its permissions', async () => {
    const { Id } = await findPromotion('OWNONLY');
    const body = promotionOf('NEW', [ownEntity]);

    for (const response of [
      await self.post(promotions, body),
      await self.put(`${promotions}/${Id}`, body),
      await self.patch(`${promotions}/${Id}`, { Name: 'Other' }),
      await self.delete(`${promotions}/${Id}`),
    ]) {
      expect(response.status).to.equal(403);
      expect(response.body.code).to.equal('forbidden');
    }
    expect(summaryOf((await all.get(promotions)).body)).to.deep.equal(ofAll());
  });

  it('Changes has the promotions of the own entity, with the own id only, and one that goes to another entity is gone', async () => {
    const start = async (client: Client): Promise<string> =>
      (await client.get('/api/v1/Changes?after=now')).headers.get('next-cursor') ?? '';
    const [ofBare, ofEveryone] = [await start(bare), await start(all)];
    const created = (await createPromotion('MOVING', [ownEntity, foreignEntity])).body;
    const path = `${promotions}/${created.Id}`;
    for (const EntityIds of [[foreignEntity], [ownEntity]]) await admin.patch(path, { EntityIds });
    const foreign = (await createPromotion(`${secret}3`, [foreignEntity])).body;
    await admin.delete(path);

    /** Waits until the changes are final: a transaction elsewhere on the server holds them back. */
    const read = (client: Client, cursor: string, length: number) =>
      eventually(async () => {
        const address = `/api/v1/Changes?after=${cursor}&include=record&resource=Promotion`;
        const changes: { Key: string; Action: string; Record: Promotion | null }[] = (
          await client.get(address)
        ).body;
        expect(client === bare && JSON.stringify(changes).includes(secret)).to.equal(false);

        const ours = changes.filter(({ Key }) =>
          [created.Id, foreign.Id].map(String).includes(Key),
        );
        return ours.length === length && ours;
      });

    const seen = await read(bare, ofBare, 4);
    expect(seen.map(({ Action, Record }) => [Action, Record?.EntityIds ?? null])).to.deep.equal([
      ['create', [ownEntity]],
      ['update', null],
      ['update', [ownEntity]],
      ['delete', null],
    ]);
    expect(await read(all, ofEveryone, 5)).to.have.length(5);
    await admin.delete(`${promotions}/${foreign.Id}`);
  });

  it('a stream has the promotions of the own entity, beside one of scope All at the same place', async () => {
    const cursor = (await bare.get('/api/v1/Changes?after=now')).headers.get('next-cursor') ?? '';
    const ofAll = (await all.get('/api/v1/Changes?after=now')).headers.get('next-cursor') ?? '';
    const streams = [
      { client: bare, after: cursor, text: '' },
      { client: all, after: ofAll, text: '' },
    ];
    const abort = new AbortController();
    const reading = streams.map(async stream => {
      const response = await fetch(
        `${world.url}/api/v1/Changes/stream?after=${stream.after}&include=record`,
        {
          headers: { Authorization: `Bearer ${stream.client.tokens?.accessToken}` },
          signal: abort.signal,
        },
      );
      for await (const piece of response.body ?? []) stream.text += Buffer.from(piece).toString();
    });

    const foreign = (await createPromotion(`${secret}4`, [foreignEntity])).body;
    const own = (await createPromotion('STREAMED', [foreignEntity, ownEntity])).body;

    await eventually(() => streams.every(({ text }) => text.includes('STREAMED')));
    abort.abort();
    await Promise.allSettled(reading);
    const [ofOwn = '', ofEvery = ''] = streams.map(({ text }) => text);
    expect(ofOwn).to.include(`"EntityIds":[${ownEntity}]`).and.not.include(secret);
    expect(ofEvery).to.include(`"EntityIds":[${foreignEntity},${ownEntity}]`).and.include(secret);
    for (const { Id } of [foreign, own]) await admin.delete(`${promotions}/${Id}`);
  });

  it('options are read with settings.read by a caller of scope Self, and by every caller of scope All', async () => {
    const reader = await world.loginAs(world.acme, {
      scope: 'Self',
      entityId: ownEntity,
      permissions: ['settings.read'],
    });
    const anybody = await world.loginAs(world.acme, {});
    const [{ Id }] = (await all.get(options)).body;

    for (const path of [options, `${options}/${Id}`, `${options}?sort=Id`]) {
      expect((await bare.get(path)).status).to.equal(403);
      expect((await anybody.get(path)).status).to.equal(200);
      expect((await reader.get(path)).status).to.equal(200);
    }
    expect((await bare.get(options, { Accept: 'text/csv' })).status).to.equal(403);
    expect((await bare.get('/api/v1/Changes?resource=SystemOption')).status).to.equal(403);
    expect((await reader.get('/api/v1/Changes?resource=SystemOption')).status).to.equal(200);
  });

  it('a caller of scope Self with users.read learns no name of a user of another entity', async () => {
    for (const path of [
      '/api/v1/Activity?include=user&sort=Id',
      '/api/v1/AuditLog?include=user&sort=Id',
    ]) {
      const names = ({ body }: { body: { UserName: string | null }[] }) =>
        body.map(({ UserName }) => UserName).filter(name => name !== null);

      expect(names(await self.get(path)).join()).not.to.include(secret);
      expect(names(await all.get(path)).join()).to.include(secret);
    }
    expect((await self.get('/api/v1/Users?sort=Id')).body).to.have.length.above(0);
    expect(JSON.stringify((await self.get('/api/v1/Users?sort=Id')).body)).not.to.include(secret);
  });

  /**
   * The reads of the document whose status depends on the caller: of scope `Self` without a
   * permission, the same with all permissions, and of scope `All` with all.
   */
  const different: Record<string, readonly [bare: number, self: number, all: number]> = {
    '/api/v1/Activity': [403, 200, 200],
    '/api/v1/Activity/{id}': [403, 200, 200],
    '/api/v1/AuditLog': [403, 200, 200],
    '/api/v1/AuditLog/{id}': [403, 200, 200],
    '/api/v1/EntityStatus': [403, 200, 200],
    '/api/v1/EntityStatus/{id}': [403, 200, 200],
    '/api/v1/IdentityProviders': [403, 403, 200],
    '/api/v1/IdentityProviders/{id}': [403, 403, 404],
    '/api/v1/Logins': [403, 403, 200],
    '/api/v1/Programs': [403, 200, 200],
    '/api/v1/Programs/{id}': [403, 404, 404],
    '/api/v1/Programs/{id}/keys': [403, 404, 404],
    '/api/v1/Programs/{id}/keys/{keyId}': [403, 404, 404],
    '/api/v1/Roles': [403, 200, 200],
    '/api/v1/Roles/{id}': [403, 200, 200],
    '/api/v1/Roles/{id}/second-factor': [403, 200, 200],
    '/api/v1/SystemOptions': [403, 200, 200],
    '/api/v1/SystemOptions/{id}': [403, 200, 200],
    '/api/v1/Usage': [403, 403, 200],
    '/api/v1/Users': [403, 200, 200],
    '/api/v1/Users/{id}': [403, 404, 200], // one of the head office
    '/api/v1/Webhooks': [403, 403, 200],
    '/api/v1/Webhooks/{id}': [403, 403, 404],
    '/api/v1/auth/sign-in-rules': [403, 403, 200],
    '/api/v1/Webhooks/{id}/Deliveries': [403, 403, 404],
    '/api/v1/Webhooks/{id}/Waiting': [403, 403, 404],
  };

  it('no read of the document shows a caller of scope Self anything of another entity', async () => {
    const both = await findPromotion('BOTH');
    const ids: Record<string, string> = {
      entityId: String(ownEntity),
      promoCode: 'BOTH',
    };
    const seen: Record<string, number[]> = {};

    for (const [path, operations] of Object.entries(document.paths)) {
      if (!operations.get || !path.startsWith('/api/v1/') || path.endsWith('/stream')) continue;
      const address = path
        .replace('/Promotions/{id}', `/Promotions/${both.Id}`)
        .replace(/\{(\w+)\}/g, (_, name: string) => ids[name] ?? '1');
      const statuses: number[] = [];
      for (const client of [bare, self, all]) {
        const { status, body } = await client.get(address);
        statuses.push(status);
        const isOption = path.startsWith(options);
        if (client !== all && !(client === self && isOption)) {
          expect(JSON.stringify(body), address).not.to.include(secret);
        }
      }
      if (new Set(statuses).size > 1) seen[path] = statuses;
    }
    expect(seen).to.deep.equal(different);
  });
});
