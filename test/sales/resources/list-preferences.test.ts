import { expect } from 'chai';
import type { ApiResponse, Client } from '../../support/client.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';
import { expectRefused } from './expect.ts';

type Body = Record<string, unknown>;
const counted = { Prefer: 'count=exact' };
const rangeOf = ({ headers }: ApiResponse) => headers.get('content-range');
const appliedTo = ({ headers }: ApiResponse) => headers.get('preference-applied');

describe('Prefer: count=exact and include', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  before(async () => {
    await sql(
      world.acme,
      `insert into entities (name, entity_type)
       select 'Entity ' || i, case when i % 3 = 0 then 'supplier' else 'customer' end from generate_series(1, 57) i;
       insert into currencies (code, name) values ('EUR', 'Euro'), ('SEK', 'Krona'), ('DKK', 'Krone')`,
    );
    await admin.post('/api/v1/Activity', { ActivityCode: 1 });
    await admin.post('/api/v1/Webhooks', {
      Url: 'https://hooks.example.com/changes',
      Resources: ['Country'],
    });
    await sql(
      world.globex,
      `insert into entities (name, entity_type) values ('Other', 'customer')`,
    );
  });

  const lists: [string, string][] = [
    ...['EntityStatus', 'Currency', 'Entities', 'Users', 'Roles', 'Webhooks', 'Activity'].map(
      (name): [string, string] => [name, 'etag'],
    ),
    ...['Activity', 'AuditLog', 'AuditLog?resource=User'].map((name): [string, string] => [
      name,
      'user',
    ]),
  ];

  for (const [name, include] of lists) {
    it(`the plain response of ${name} is the same before and after Prefer: count=exact and include, which add to it`, async () => {
      const path = `/api/v1/${name}`;
      const plain = await admin.get(path);
      expect(rangeOf(plain)).to.equal(null);
      expect(appliedTo(plain)).to.equal(null);

      const other = await admin.get(path, { Prefer: 'return=minimal' });
      expect(other.body).to.deep.equal(plain.body);
      expect(rangeOf(other)).to.equal(null);
      expect(other.headers.get('vary')).to.equal(plain.headers.get('vary'));
      expect(other.headers.get('etag')).to.equal(plain.headers.get('etag'));

      const withCount = await admin.get(path, counted);
      expect(withCount.body).to.deep.equal(plain.body);
      expect(withCount.status).to.equal(200);
      expect(appliedTo(withCount)).to.equal('count=exact');
      expect(rangeOf(withCount)).to.match(/^items 0-\d+\/\d+$/);

      const included = await admin.get(
        `${path}${path.includes('?') ? '&' : '?'}include=${include}`,
      );
      const field = include === 'etag' ? 'ETag' : 'UserName';
      const withoutField = (included.body as Body[]).map(({ [field]: _, ...record }) => record);
      expect(withoutField).to.deep.equal(plain.body);
      expect((await admin.get(path)).body).to.deep.equal(plain.body);
    });
  }

  it('Content-Range has the places of a page and the number of all records that the filters match', async () => {
    const get = (query: string, client = admin) => client.get(`/api/v1/Entities${query}`, counted);

    expect(rangeOf(await get('?filter[Name][prefix]=Entity'))).to.equal('items 0-19/57');
    expect(rangeOf(await get('', globex))).to.equal('items 0-0/1');
    expect(rangeOf(await get('?filter[EntityType]=supplier&limit=5'))).to.equal('items 0-4/19');
    expect(rangeOf(await get('?q=5%20entity'))).to.equal('items 0-12/13');

    const none = await get('?filter[Name]=nobody');
    expect(none.body).to.deep.equal([]);
    expect(rangeOf(none)).to.equal('items */0');
    expect(appliedTo(none)).to.equal('count=exact');

    const first = await get('?filter[Name][prefix]=Entity&sort=Name&limit=50');
    const next = /<([^>]+)>/.exec(first.headers.get('link') ?? '')?.[1] ?? '';
    const second = await admin.get(next, counted);
    expect(second.body.length).to.equal(7);
    expect(rangeOf(second)).to.equal('items */57');
    expect(appliedTo(second)).to.equal('count=exact');

    const byNumber = await get('?after=3');
    expect(byNumber.status).to.equal(200);
    expect(rangeOf(byNumber)).to.equal(null);
    expect(appliedTo(byNumber)).to.equal(null);
  });

  it('a new number of all records changes the ETag of a counted page with the same records, so that no browser shows the old number', async () => {
    const path = '/api/v1/Entities?sort=Id&limit=1';
    const first = await globex.get(path, counted);
    const tag = first.headers.get('etag') ?? '';
    const revalidate = () => globex.get(path, { ...counted, 'If-None-Match': tag });
    const plain = await globex.get(path);
    expect((await revalidate()).status).to.equal(304);

    const added = await globex.post('/api/v1/Entities', { Name: 'More', EntityType: 'customer' });

    const second = await revalidate();
    expect(second.status).to.equal(200);
    expect(second.body).to.deep.equal(first.body);
    expect(rangeOf(second)).to.equal('items 0-0/2');
    expect((await globex.get(path)).headers.get('etag')).to.equal(plain.headers.get('etag'));
    await globex.delete(`/api/v1/Entities/${added.body.Id}`);
  });

  it('a count includes only the records that the caller may see', async () => {
    const [own] = await sql<{ id: string }>(
      world.acme,
      `select id from entities order by id desc limit 1`,
    );
    const self = await world.loginAs(world.acme, {
      permissions: ['full.read'],
      scope: 'Self',
      entityId: Number(own?.id),
    });

    expect(rangeOf(await self.get('/api/v1/Entities', counted))).to.equal('items 0-0/1');

    const audit = await self.get('/api/v1/AuditLog', counted);
    expect(rangeOf(audit)).to.equal('items 0-0/1');
    expect(audit.body.length).to.equal(1);
  });

  it('Preference-Applied names both preferences, and strict handling knows the parameter include', async () => {
    const both = await admin.get('/api/v1/Entities?include=etag', {
      Prefer: 'handling=strict, count=exact',
    });
    expect(both.status).to.equal(200);
    expect(appliedTo(both)).to.equal('handling=strict, count=exact');

    expectRefused(await admin.get('/api/v1/Entities?include=user'), 400, 'validation_failed', [
      'include',
    ]);
    expectRefused(
      await admin.get('/api/v1/Entities?include=etag&include=user'),
      400,
      'validation_failed',
      ['include'],
    );
    expectRefused(await admin.get('/api/v1/Activity?include=etags'), 400, 'validation_failed', [
      'include',
    ]);

    expect((await admin.get('/api/v1/Entities/1?include=user')).status).to.equal(200);
    expect((await admin.get('/api/v1/Usage?include=user')).status).to.equal(200);
  });

  it('a count that takes longer than a second ends, the total is then *, and the connection stays usable', async () => {
    // The lock lets the page pass: a policy of row security is slow only for the count.
    await sql(
      world.globex,
      `create function slow(name text) returns boolean language plpgsql as
         $$begin if current_setting('statement_timeout') = '1s' then perform pg_sleep(30); end if; return true; end$$;
       alter table entities enable row level security;
       create policy slow on entities using (slow(name))`,
    );

    const slow = await globex.get('/api/v1/Entities', counted);
    expect(slow.status).to.equal(200);
    expect(slow.body.length).to.equal(1);
    expect(rangeOf(slow)).to.equal('items 0-0/*');
    expect(appliedTo(slow)).to.equal(null);

    await sql(world.globex, 'alter table entities disable row level security');
    expect(rangeOf(await globex.get('/api/v1/Entities', counted))).to.equal('items 0-0/1');
  });

  it('the ETag of each record in a list is that of a read of the record, and is accepted as If-Match', async () => {
    for (const name of [
      'EntityStatus',
      'Currency',
      'Entities',
      'Users',
      'Roles',
      'Webhooks',
      'Activity',
      'AuditLog',
    ]) {
      const { body } = await admin.get(`/api/v1/${name}?include=etag&limit=5`);
      expect(body.length).to.be.above(0);
      for (const { Id, ETag } of body) {
        expect((await admin.get(`/api/v1/${name}/${Id}`)).headers.get('etag'), name).to.equal(ETag);
      }
    }

    const { body } = await admin.get('/api/v1/Currency?include=etag&filter[Code]=SEK');
    const patch = (tag: string) =>
      admin.patch(`/api/v1/Currency/${body[0].Id}`, { Symbol: 'kr' }, { 'If-Match': tag });
    expect((await patch(body[0].ETag)).status).to.equal(200);
    expectRefused(await patch(body[0].ETag), 412, 'precondition_failed');
  });

  it('activities and audit entries have the names of their users, and null for others and users of other tenants', async () => {
    const me = (await admin.get('/api/v1/auth/me')).body;
    const [stranger] = await sql<{ id: string }>(
      { adminUrl: world.config.databaseUrl } as never,
      `select id from users where tenant_id = ${world.globex.id} limit 1`,
    );

    const screen = 'Names';
    await admin.post('/api/v1/Activity', {
      ActivityCode: 1,
      Screen: screen,
      Comment: '"UserId":1',
    });
    await admin.post('/api/v1/Activity', {
      ActivityCode: 2,
      Screen: screen,
      UserId: Number(stranger?.id),
    });
    await admin.post('/api/v1/Activity', { ActivityCode: 3, Screen: screen, UserId: null });

    const { body } = await admin.get(
      `/api/v1/Activity?include=user&filter[Screen]=${screen}&sort=ActivityCode`,
    );
    const name = `${me.firstName} ${me.lastName}`.trim();
    expect(body.map(({ UserName }: Body) => UserName)).to.deep.equal([name, null, null]);

    const entries = (await admin.get('/api/v1/AuditLog?include=user&resource=Currency')).body;
    expect(entries.length).to.be.above(0);
    for (const { UserId, UserName } of entries) {
      expect(UserName).to.equal(UserId === null ? null : name);
    }
  });

  it('a caller who may not read users gets only the own name, and those of users of the own entity', async () => {
    const { body: entity } = await admin.post('/api/v1/Entities', {
      Name: 'Names',
      EntityType: 'customer',
    });
    const rights = { permissions: ['full.read', 'full.manage'], entityId: entity.Id };
    const [reader, colleague] = await Promise.all(
      [1, 2].map(() => world.loginAs(world.acme, rights)),
    );
    const screen = 'Own names';
    for (const client of [reader!, colleague!, admin]) {
      await client.post('/api/v1/Activity', { ActivityCode: 1, Screen: screen });
    }

    const list = `/api/v1/Activity?include=user&filter[Screen]=${encodeURIComponent(screen)}&sort=Id`;
    const names = async (client: Client) =>
      (await client.get(list)).body.map(({ UserName }: Body) => UserName);

    expect(await names(reader!)).to.deep.equal(['Test User', 'Test User', null]);
    expect(await names(admin)).to.not.include(null);
  });

  it('CSV has the fields of the view, whatever is included or preferred', async () => {
    const csv = { Accept: 'text/csv' };
    const plain = await admin.get('/api/v1/Currency', csv);
    const preferring = await admin.get('/api/v1/Currency?include=etag', { ...csv, ...counted });
    expect(preferring.body).to.deep.equal(plain.body);
    expect(rangeOf(preferring)).to.equal(null);
  });
});
