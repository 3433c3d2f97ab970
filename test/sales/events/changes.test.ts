import { expect } from 'chai';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { settle } from '../../support/settle.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';

const path = '/api/v1/Changes';

interface SentChange {
  Id: string;
  EventId: string;
  Type: string;
  Resource: string;
  Key: string;
  Fields: string[];
  Record?: Record<string, unknown> | null;
  Href?: string;
  ETag?: string;
}

describe('the feed of changes', () => {
  const world = useWorld();
  let admin: Client;
  let globex: Client;

  before(async () => {
    [admin, globex] = [await world.login(world.acme), await world.login(world.globex)];
  });

  async function read(
    client: Client,
    query: string,
  ): Promise<{ changes: SentChange[]; next: string; link: string | null }> {
    const { status, body, headers } = await client.get(`${path}?${query}`);
    expect(status, JSON.stringify(body)).to.equal(200);
    const others = query.replace(/after=[^&]*&?/, '');
    return {
      changes: body,
      next: `after=${headers.get('next-cursor')}&${others}`,
      link: headers.get('link'),
    };
  }
  /**
   * Reads until so many changes are final: a transaction of another test may hold them back for
   * a moment.
   */
  const readMany = (client: Client, query: string, count: number) =>
    eventually(async () => {
      const page = await read(client, query);
      return page.changes.length >= count && page;
    });
  const now = async (client: Client, query = ''): Promise<string> => {
    await settle(world.acme, world.globex);
    return (await read(client, `after=now${query}`)).next;
  };
  const typesAfter = async (client: Client, next: string, count = 1) =>
    (await readMany(client, next, count)).changes.map(({ Type }) => Type);

  it('each change is one item with resource, key, changed fields and path, and its cursor continues after it', async () => {
    const first = await now(admin);
    const me = (await admin.get('/api/v1/auth/me')).body;

    await admin.post('/api/v1/Countries', { CountryCode: 'NZ', CountryName: 'Zealand' });
    await admin.put('/api/v1/Countries', { CountryCode: 'NZ', CountryName: 'New Zealand' });
    await admin.delete('/api/v1/Countries/code/NZ');

    const { changes, next } = await readMany(admin, first, 3);
    const common = {
      Resource: 'Country',
      Key: 'NZ',
      UserGuid: me.userGuid,
      Href: '/api/v1/Countries/code/NZ',
    };

    expect(
      changes.map(({ Id: _, EventId: __, At: ___, ...rest }: SentChange & { At?: string }) => rest),
    ).to.deep.equal([
      { Type: 'country.created', ...common, Action: 'create', Fields: [] },
      { Type: 'country.updated', ...common, Action: 'update', Fields: ['CountryName'] },
      { Type: 'country.deleted', ...common, Action: 'delete', Fields: [] },
    ]);

    expect((await read(admin, next)).changes).to.deep.equal([]);
    expect(await typesAfter(admin, `after=${changes[0]?.Id}`)).to.deep.equal([
      'country.updated',
      'country.deleted',
    ]);

    const firstPage = await readMany(admin, `${first}limit=1`, 1);
    expect(firstPage.changes).to.deep.equal(changes.slice(0, 1));
    expect((await readMany(admin, firstPage.next, 1)).changes).to.deep.equal(changes.slice(1, 2));
    const [, linked = ''] = /^<.+\?(.+)>; rel="next"$/.exec(firstPage.link ?? '') ?? [];
    expect((await readMany(admin, linked, 1)).changes).to.deep.equal(changes.slice(1, 2));
  });

  it('include=record adds exactly the fields of the view of the resource, and null for a record that is gone', async () => {
    const first = await now(admin, '&include=record');

    const { body: unit } = await admin.post('/api/v1/UnitsOfMeasure', {
      Code: 'ml',
      Name: 'Millilitre',
    });
    const { body: activity } = await admin.post('/api/v1/Activity', {
      ActivityCode: 7,
      Comment: 'called',
    });
    await admin.delete(`/api/v1/UnitsOfMeasure/${unit.Id}`);

    const { changes } = await readMany(admin, first, 3);
    expect(changes.map(({ Record }) => Record)).to.deep.equal([unit, activity, null]);
  });

  it('include=etag adds the tag of the record, which a change of it takes as If-Match', async () => {
    const first = await now(admin, '&include=etag');
    const bodies: Record<string, object> = {
      Currency: { Code: 'ETG', Name: 'Tagged', Symbol: '€' },
      Countries: { CountryCode: 'ET', CountryName: 'Tagged' },
      OrderStatuses: { Name: 'Tagged' },
      UnitsOfMeasure: { Code: 'etag', Name: 'Tagged' },
      TaxCodes: { Code: 'ETAG', Name: 'Tagged', Rate: 12.5 },
      SystemOptions: { SystemOptionTypeId: 1, Value: 'Tagged' },
      EntityStatus: { Title: 'Tagged' },
      Promotions: {
        PromoCode: 'ETAG',
        Name: 'Tagged',
        DiscountType: 'Percentage',
        DiscountValue: 7.25,
        StartsAt: '2026-01-01T12:00:00.120Z',
      },
      Entities: { Name: 'Tagged', EntityType: 'customer', StatusId: 1 },
    };
    for (const [name, body] of Object.entries(bodies)) {
      const { status } = await admin.post(`/api/v1/${name}`, body);
      expect(status, name).to.equal(201);
    }

    const { changes } = await readMany(admin, first, Object.keys(bodies).length);

    expect(changes).to.have.length(Object.keys(bodies).length);
    for (const { Href, ETag, Record } of changes) {
      const { headers } = await admin.get(String(Href));
      // the tag of an entity has a second part, of its fields of other records
      const [version] = String(headers.get('etag')).split('.');
      expect(ETag, String(Href)).to.equal(`${version?.replace(/"$/, '')}"`);
      expect(Record).to.equal(undefined);

      const removed = await admin.delete(String(Href), { 'If-Match': String(ETag) });
      expect(removed.status, String(Href)).to.equal(204);
    }
  });

  it('nobody receives the changes of another tenant', async () => {
    const [ofAcme, ofGlobex] = [await now(admin), await now(globex)];
    await admin.post('/api/v1/OrderStatuses', { Name: 'of acme' });
    await globex.post('/api/v1/TaxCodes', { Code: 'G', Name: 'of globex', Rate: 1 });
    expect(await typesAfter(admin, ofAcme)).to.deep.equal(['order_status.created']);
    expect(await typesAfter(globex, ofGlobex)).to.deep.equal(['tax_code.created']);
  });

  it('a caller receives only the resources that they may read, and 403 if they name another one', async () => {
    const reader = await world.loginAs(world.acme, { permissions: [] });
    const first = await now(reader);
    await admin.post('/api/v1/EntityStatus', { Title: 'needs full.read' });
    await admin.post('/api/v1/Activity', { ActivityCode: 1 });
    await admin.post('/api/v1/OrderStatuses', { Name: 'for every user' });
    expect(await typesAfter(reader, first)).to.deep.equal(['order_status.created']);
    expect((await reader.get(`${path}?resource=Country,Activity`)).status).to.equal(403);
  });

  it('a caller of scope Self receives the changes of their own entity and of reference data only', async () => {
    const [own, other] = await Promise.all(
      ['own', 'other'].map(
        async Name => (await admin.post('/api/v1/Entities', { Name, EntityType: 'customer' })).body,
      ),
    );

    const self = await world.loginAs(world.acme, {
      permissions: ['full.read'],
      scope: 'Self',
      entityId: own.Id,
    });

    const first = await now(self);
    for (const { Id } of [own, other]) {
      await admin.put(`/api/v1/Entities/${Id}`, { Name: `renamed ${Id}`, EntityType: 'customer' });
      await admin.post('/api/v1/Activity', { ActivityCode: 1, EntityId: Id });
    }
    await admin.post('/api/v1/Activity', { ActivityCode: 1 });
    await admin.post('/api/v1/OrderStatuses', { Name: 'reference' });

    const { changes } = await readMany(self, first, 3);
    expect(
      changes.map(({ Type, Key }) => [Type, Type === 'entity.updated' ? Key : '']),
    ).to.deep.equal([
      ['entity.updated', String(own.Id)],
      ['activity.created', ''],
      ['order_status.created', ''],
    ]);
  });

  it('a cursor from before its reader could see more or less gets 410, and goes on counting for the others', async () => {
    const { body: entity } = await admin.post('/api/v1/Entities', {
      Name: 'of a reader',
      EntityType: 'customer',
    });
    const changes = {
      scope: `update users set scope = 'Self', entity_id = ${entity.Id}, entity_since = now() where guid = ?`,
      entity: 'update users set entity_id = entity_id + 1 where guid = ?',
      role: `update roles set permissions = '{}' where id = (select role_id from users where guid = ?)`,
    };
    for (const [what, change] of Object.entries(changes)) {
      const scope = what === 'entity' ? 'Self' : 'All';
      const entityId = what === 'entity' ? entity.Id : null;
      const reader = await world.loginAs(world.acme, {
        permissions: ['full.read'],
        scope,
        entityId,
      });

      const me = (await reader.get('/api/v1/auth/me')).body;
      const before = await now(reader);

      await admin.post('/api/v1/OrderStatuses', { Name: `before another ${what}` });
      const [item] = (await readMany(reader, before, 1)).changes;

      await controlSql(world, change, [me.userGuid]);

      for (const query of [before, `after=${item!.Id}`]) {
        const refused = await eventually(async () => {
          const response = await reader.get(`${path}?${query}`);
          return response.status !== 200 && response;
        });
        expect(refused.status, what).to.equal(410);
        expect(refused.body.code, what).to.equal('cursor_expired');
      }
      expect((await reader.get(`${path}?after=now`)).status, what).to.equal(200);
    }

    const other = await now(admin);
    expect(
      (await read(admin, other)).changes,
      'of a reader whose access is the same',
    ).to.deep.equal([]);
  });

  it('a cursor before what the retention has removed gets 410 and the way to begin again', async () => {
    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });
    await admin.post('/api/v1/OrderStatuses', { Name: 'before the removal' });
    const { changes } = await readMany(reader, 'limit=1', 1);
    const first = await now(reader, '&resource=Activity&limit=1000');

    const insert = `insert into activities (created_at, activity_code, recorded_by, recorded_from)
                    values (now() - interval '60 days', 1, 1, '')`;
    await sql(world.acme, `select set_config('app.actor', '{}', false); ${insert}`);
    const { next } = await readMany(reader, first, 1);
    await sql(world.acme, `select remove_old_activities(1, 1000000, now() - interval '30 days')`);

    const expired = await reader.get(`${path}?after=${changes[0]?.Id}`);
    expect(expired.status).to.equal(410);
    expect(expired.body.code).to.equal('cursor_expired');

    expect((await read(reader, next)).changes, 'the cursor after the removed change').to.deep.equal(
      [],
    );
    expect((await reader.get(path)).status, 'without a cursor').to.equal(200);
  });

  it('a cursor that the service did not make, an unknown resource or include is refused with the name of the parameter', async () => {
    for (const [name, value] of [
      ['after', 'yesterday'],
      ['after', '1-2-3'],
      ['resource', 'User'],
      ['include', 'everything'],
      ['limit', '0'],
    ]) {
      const { status, body } = await admin.get(`${path}?${name}=${value}`);

      expect(status, `${name}=${value}`).to.equal(400);
      expect(Object.keys(body.errors), `${name}=${value}`).to.deep.equal([name]);
    }
  });
});
