import { expect } from 'chai';
import { owners } from '../../../src/control/secret-box.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { findTenant } from '../../../src/operator/registry/tenants.ts';
import { controlSql, sql, useLogin, useWorld } from '../../support/world.ts';
import { type AuditEntry, auditOf, expectRefused, newestAudit } from '../resources/expect.ts';

const path = '/api/v1/AuditLog';

describe('audit log', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  const read = async (query = '', client = admin): Promise<AuditEntry[]> => {
    const { status, body } = await client.get(`${path}${query}`);
    expect(status).to.equal(200);
    return body;
  };

  it('the audit log is an empty list, not 404, before the first change', async () => {
    const initech = await world.login(await world.provision('initech'));
    const seeded = await read('?limit=1000', initech);
    // The operator has made the rows with which a tenant begins, and their entries say so.
    for (const { UserId, Resource } of seeded) {
      expect(UserId).to.equal(null);
      expect(Resource).to.equal('EntityStatus');
    }
    expect(await read('?resource=Country', initech)).to.deep.equal([]);
  });

  it('a search finds the entries whose resource or key contains every word, in any letter case', async () => {
    const umbrella = await world.provision('umbrella');
    const client = await world.login(umbrella);
    const names = ['Country', 'Entity', 'EntityStatus', 'OrderStatus', 'Promotion', 'PromotionUse'];
    await sql(
      umbrella,
      `insert into audit_log (action, resource, record_key, database_user)
       select 'create', resource, key, 'test'
         from unnest($1::text[]) resource, unnest($2::text[]) key`,
      [names, ['7', 'promo-12', 'STATUS', 'n%t']],
    );
    const all = await read('?limit=1000', client);

    const searches =
      'PROMO,promotionuse,sTAtus,entitystat,tus 7,promo n%t,n%t,coun_ry,xyz,o-12,e,İty';
    for (const search of searches.split(',')) {
      const words = search.replaceAll('İ', 'i').toLowerCase().split(' ');
      const expected = all.filter(({ Resource, Key }) =>
        words.every(word => [Resource, Key].some(text => text.toLowerCase().includes(word))),
      );

      const found = await read(`?limit=1000&q=${encodeURIComponent(search)}`, client);
      expect(found.map(({ Id }) => Id).toSorted(), search).to.deep.equal(
        expected.map(({ Id }) => Id).toSorted(),
      );
    }
  });

  it('an audit entry has the time, user, address and action, and the record before and after', async () => {
    const started = Date.now();
    const { body: unit, headers } = await admin.post('/api/v1/UnitsOfMeasure', {
      Code: 'kg',
      Name: 'Kilogram',
    });

    const [entry] = await read('?limit=1');
    const me = (await admin.get('/api/v1/auth/me')).body;
    const [user] = await controlSql<{ id: string }>(world, 'select id from users where guid = ?', [
      me.userGuid,
    ]);

    expect(entry).to.deep.equal({
      Id: entry?.Id,
      CreatedAt: entry?.CreatedAt,
      UserId: Number(user?.id),
      UserGuid: me.userGuid,
      Action: 'create',
      Resource: 'UnitOfMeasure',
      Key: String(unit.Id),
      Before: null,
      After: unit,
      IPAddress: '127.0.0.1',
      TraceId: headers.get('x-request-id'),
    });
    expect(entry?.CreatedAt).to.match(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    expect(Date.parse(String(entry?.CreatedAt))).to.be.within(started - 1_000, Date.now() + 1_000);
  });

  it('plain SQL writes one entry for each changed record, without a user', async () => {
    await sql(world.acme, `insert into order_statuses (name) values ('a'), ('b'), ('c')`);
    await sql(world.acme, `update order_statuses set weighting = 1 where name in ('a', 'b')`);
    await sql(world.acme, 'update order_statuses set weighting = 1 where weighting = 1');
    await sql(world.acme, 'delete from order_statuses');

    const entries = (await read('?resource=OrderStatus&limit=1000')).toReversed();
    const [a, b, c] = entries.slice(0, 3).map(({ Key }) => Key);

    expect(entries.slice(0, 5).map(({ Action, Key }) => [Action, Key])).to.deep.equal([
      ['create', a],
      ['create', b],
      ['create', c],
      ['update', a],
      ['update', b],
    ]);
    expect(entries.slice(5).map(({ Action, Key }) => [Action, Key])).to.have.deep.members([
      ['delete', a],
      ['delete', b],
      ['delete', c],
    ]);

    for (const entry of entries) {
      expect(entry).to.include({ UserId: null, UserGuid: null, TraceId: null });
    }
  });

  it('marking a record as deleted is logged as a deletion, with the record before and after', async () => {
    const { body: country } = await admin.post('/api/v1/Countries', {
      CountryCode: 'DD',
      CountryName: 'Gone',
    });

    await admin.delete('/api/v1/Countries/code/dd');
    const [deletion] = await read('?resource=Country&key=DD&limit=1');
    const { body: marked } = await admin.get('/api/v1/Countries/code/DD?includeDeleted=true');

    expect(deletion?.Action).to.equal('delete');
    expect(deletion?.Before).to.deep.equal(country);
    expect(deletion?.After).to.deep.equal(marked);
  });

  it('a later change of a record does not change its earlier audit entries', async () => {
    const { body: first } = await admin.post('/api/v1/TaxCodes', {
      Code: 'VAT',
      Name: 'First',
      Rate: 1.5,
    });
    const [before] = await auditOf(admin, 'TaxCode', first.Id);
    await admin.put(`/api/v1/TaxCodes/${first.Id}`, { Code: 'VAT', Name: 'Second', Rate: 2.25 });
    await admin.delete(`/api/v1/TaxCodes/${first.Id}`);
    expect((await auditOf(admin, 'TaxCode', first.Id))[0]).to.deep.equal(before);
  });

  describe('list of audit entries', () => {
    it('the audit log lists the newest entries first, 20 by default and at most 1,000', async () => {
      await sql(
        world.acme,
        `insert into system_options (system_option_type_id, value) select 1, n from generate_series(1, 1005) n`,
      );

      const ids = (await read('?limit=1000')).map(({ Id }) => Id);
      expect(ids).to.have.lengthOf(1_000);
      expect(ids).to.deep.equal(ids.toSorted((a, b) => b - a));
      expect(ids[0]).to.equal(await newestAudit(admin));
      expect((await read()).map(({ Id }) => Id)).to.deep.equal(ids.slice(0, 20));
      expect((await read('?limit=3')).map(({ Id }) => Id)).to.deep.equal(ids.slice(0, 3));
      expect((await read('?limit=999999999999')).map(({ Id }) => Id)).to.deep.equal(ids);
    });

    it('the audit log can be filtered by resource, by record, by user, and by all of them', async () => {
      const editor = await world.loginAs(world.acme, { permissions: ['settings.write'] });
      const { body: a } = await admin.post('/api/v1/Currency', { Code: 'AAA', Name: 'A' });
      const { body: b } = await editor.post('/api/v1/Currency', { Code: 'BBB', Name: 'B' });
      await editor.put(`/api/v1/Currency/${a.Id}`, { Code: 'AAA', Name: 'Again' });
      await editor.post('/api/v1/Countries', {
        CountryCode: String(a.Id),
        CountryName: 'Has the key of a currency',
      });

      const [{ UserId: user } = { UserId: 0 }] = await read(`?resource=Country&key=${a.Id}`);
      const list = async (query: string) =>
        (await read(query)).map(({ Action, Resource, Key }) => `${Action} ${Resource} ${Key}`);
      const [createA, createB, updateA, country] = [
        `create Currency ${a.Id}`,
        `create Currency ${b.Id}`,
        `update Currency ${a.Id}`,
        `create Country ${a.Id}`,
      ];

      expect(await list('?resource=Currency&limit=3')).to.deep.equal([updateA, createB, createA]);
      expect(await list(`?resource=Currency&key=${a.Id}`)).to.deep.equal([updateA, createA]);
      expect(await list(`?userId=${user}`)).to.deep.equal([country, updateA, createB]);
      expect(await list(`?userId=${user}&resource=Currency`)).to.deep.equal([updateA, createB]);
      expect(await list(`?userId=${user}&resource=Currency&key=${a.Id}&limit=5`)).to.deep.equal([
        updateA,
      ]);

      expect(
        await list(`?resource=Currency&key=${encodeURIComponent("' or '1'='1")}`),
      ).to.deep.equal([]);
      expect(await list('?userId=9007199254740991')).to.deep.equal([]);
    });

    it('an invalid or repeated filter of the audit log is rejected', async () => {
      for (const name of ['limit', 'userId']) {
        for (const value of ['0', '-1', 'abc', '1e3', '', '%20', '1.5', '01']) {
          expectRefused(await admin.get(`${path}?${name}=${value}`), 400, 'validation_failed', [
            name,
          ]);
        }
      }

      for (const value of ['', '%20', '%00', 'a%0Ab', 'x'.repeat(256)]) {
        expectRefused(await admin.get(`${path}?key=${value}`), 400, 'validation_failed', ['key']);
      }

      for (const name of ['limit', 'userId', 'resource', 'key']) {
        for (const query of [`${name}=1&${name}=1`, `${name}[]=1`, `${name}[$ne]=1`]) {
          expectRefused(await admin.get(`${path}?${query}`), 400, 'validation_failed', [name]);
        }
      }
    });

    it('a name of no resource is refused with the names of all whose changes the audit log has, and of activities', async () => {
      const audited = await sql<{ name: string }>(
        world.acme,
        `select distinct split_part(encode(tgargs, 'escape'), E'\\\\000', 1) as name
           from pg_trigger where tgname like 'audit%'`,
      );
      // Programs are users whose entries the same trigger names otherwise.
      const names = [
        'User',
        'Role',
        'Program',
        'ProgramKey',
        'Factor',
        'IdentityProvider',
        'Identity',
        'SignInRule',
        'Activity',
        ...audited.map(({ name }) => name),
      ];

      for (const name of names) await read(`?resource=${name}`);
      for (const wrong of ['currency', 'Country,', 'Country,Nothing', 'Curr%25', '']) {
        const refused = await admin.get(`${path}?resource=${wrong}`);

        expectRefused(refused, 400, 'validation_failed', ['resource']);
        expect(refused.body.errorCodes.resource[0].values).to.have.members(names);
      }
    });

    it('resource takes several names with commas between them, and the names of paths', async () => {
      await admin.post('/api/v1/Countries', { CountryCode: 'NN', CountryName: 'Named' });
      await admin.post('/api/v1/Currency', { Code: 'NNN', Name: 'Named' });

      const countries = await read('?resource=Country');
      expect(await read('?resource=Countries')).to.deep.equal(countries);
      expect(await read('?resource=Countries,Country')).to.deep.equal(countries);
      const both = await read('?resource=Countries,Currency&limit=2');
      expect(both.map(({ Resource }) => Resource)).to.deep.equal(['Currency', 'Country']);
      expect(await read('?resource=Users,Roles')).not.to.be.empty;
    });

    it('the audit log contains no entry of another tenant', async () => {
      const globex = await world.login(world.globex);
      await admin.post('/api/v1/OrderStatuses', { Name: 'Only here' });
      expect(await read('?resource=OrderStatus', globex)).to.deep.equal([]);
    });
  });

  it('reading the audit log requires full.read, and no method writes entries', async () => {
    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });
    const writer = await world.loginAs(world.acme, {
      permissions: ['full.manage', 'settings.write'],
    });

    expect((await reader.get(path)).status).to.equal(200);
    expectRefused(await writer.get(path), 403, 'forbidden');
    expectRefused(
      await world.anonymous.get(path, { 'X-Tenant': world.acme.guid }),
      401,
      'unauthorized',
    );

    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
      expectRefused(await admin.send(method, path, {}), 405, 'method_not_allowed');
    }
    for (const method of ['PUT', 'PATCH', 'DELETE']) {
      expectRefused(await admin.send(method, `${path}/1`, {}), 405, 'method_not_allowed');
    }
  });

  it('an audit entry is read by its id, with the rights of the list', async () => {
    await admin.post('/api/v1/Roles', { Name: 'Read by id', Permissions: [] });
    await admin.post('/api/v1/Currency', { Code: 'RBI', Name: 'Read by id' });
    const [entry] = await read('?resource=Currency&limit=1&include=etag&sort=-Id');
    const [ofRole] = await read('?resource=Role&limit=1');
    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });
    const self = await world.loginAs(world.acme, { permissions: ['full.read'], scope: 'Self' });
    const globex = await world.login(world.globex);
    const { ETag, ...fields } = entry as AuditEntry & { ETag?: string };

    const one = await admin.get(`${path}/${entry?.Id}`);
    const role = await admin.get(`${path}/${ofRole?.Id}?resource=Roles`);

    expect(one.body).to.deep.equal(fields);
    expect(one.headers.get('etag')).to.equal(ETag);
    expect(role.body).to.deep.equal(ofRole);
    expectRefused(await reader.get(`${path}/${ofRole?.Id}?resource=Role`), 403, 'forbidden');
    expectRefused(await globex.get(`${path}/${ofRole?.Id}?resource=Role`), 404, 'not_found');
    expectRefused(await self.get(`${path}/${entry?.Id}`), 404, 'not_found');
    for (const id of ['0', 'x', '9007199254740991', `${entry?.Id}?resource=Country`]) {
      expectRefused(await admin.get(`${path}/${id}`), 404, 'not_found');
    }
  });

  it('a caller of scope Self sees only the changes of their own entity, and without an entity none', async () => {
    const entity = async (Name: string): Promise<number> =>
      (await admin.post('/api/v1/Entities', { Name, EntityType: 'customer' })).body.Id;
    const [own, other] = [await entity('Own'), await entity('Other')];

    const { body: promotion } = await admin.post('/api/v1/Promotions', {
      PromoCode: 'SPRING',
      Name: 'Spring',
      DiscountType: 'Percentage',
      DiscountValue: 10,
    });
    for (const id of [own, other]) {
      await admin.post(`/api/v1/Promotions/${promotion.Id}/entity/${id}/used`);
    }

    await admin.put(`/api/v1/Entities/${other}`, { Name: 'Other still', EntityType: 'customer' });
    await admin.put(`/api/v1/Entities/${own}`, { Name: 'Own still', EntityType: 'customer' });

    const self = await world.loginAs(world.acme, {
      permissions: ['full.read'],
      scope: 'Self',
      entityId: own,
    });
    const withoutEntity = await world.loginAs(world.acme, {
      permissions: ['full.read'],
      scope: 'Self',
      entityId: null,
    });

    const seen = await read('?limit=1000', self);
    expect(seen.map(({ Action, Resource, Key }) => `${Action} ${Resource} ${Key}`)).to.deep.equal([
      `update Entity ${own}`,
      `create PromotionUse ${promotion.Id}`,
      `create Entity ${own}`,
    ]);
    expect(seen[1]?.After).to.include({ EntityId: own });
    expect(await read(`?resource=Entity&key=${other}`, self)).to.deep.equal([]);
    expect(await read('?resource=Promotion', self)).to.deep.equal([]);
    expect(await read('?limit=1000', withoutEntity)).to.deep.equal([]);
  });

  it('a temporary table cannot take the place of audit_log, nor of a table of a definer function', async () => {
    const { roleName: user, rolePassword } = await findTenant(world.installation, 'acme');
    const password = world.installation.secrets
      .open(rolePassword, owners.rolePassword(world.acme.guid))
      .toString();

    await sql(world.acme, `grant temporary on database "${world.acme.database}" to "${user}"`);
    try {
      await withConnection(
        databaseUrl(world.acme.adminUrl, world.acme.database, { user, password }),
        async client => {
          await client.query(
            'create temporary table audit_log (like public.audit_log including defaults including identity)',
          );

          await client.query('begin');
          await client.query(`select set_config('app.actor', '{"traceId":"diverted"}', true)`);
          await client.query(
            `insert into units_of_measure (code, name) values ('temp', 'Temporary')`,
          );
          await client.query('commit');

          expect((await client.query('select from pg_temp.audit_log')).rowCount).to.equal(0);
        },
      );
    } finally {
      await sql(world.acme, `revoke temporary on database "${world.acme.database}" from "${user}"`);
    }

    expect(
      await sql(world.acme, `select from audit_log where trace_id = 'diverted'`),
    ).to.have.length(1);

    const open = `select proname from pg_proc where prosecdef and pronamespace = 'public'::regnamespace
       and not exists (select from unnest(proconfig) setting where setting ~ '^search_path=.*pg_temp$')`;
    expect(await sql(world.acme, open)).to.deep.equal([]);
    expect(await controlSql(world, open)).to.deep.equal([]);
  });

  it('a failed audit entry rolls back the change, and the response does not contain the reason', async () => {
    const places = [
      '/api/v1/UnitsOfMeasure',
      '/api/v1/Countries',
      '/api/v1/Entities',
      '/api/v1/Currency',
    ];
    const bodies = [
      { Code: 'box', Name: 'Box' },
      { CountryCode: 'SE', CountryName: 'Sweden' },
      { Name: 'Shop', EntityType: 'customer' },
      { Code: 'SEK', Name: 'Krona' },
    ];
    const others = [
      { Code: 'crate', Name: 'Crate' },
      { CountryCode: 'SE', CountryName: 'Sverige' },
      { Name: 'Shop', EntityType: 'supplier' },
      { Code: 'NOK', Name: 'Krone' },
    ];

    const paths: string[] = [];
    for (const [index, place] of places.entries()) {
      paths.push(String((await admin.post(place, bodies[index])).headers.get('location')));
    }

    const before = await Promise.all(places.map(async place => (await admin.get(place)).body));
    const audited = await newestAudit(admin);

    await sql(
      world.acme,
      `create function fail() returns trigger language plpgsql as $$ begin raise exception 'secret reason'; end $$;
       create trigger fail before insert on audit_log for each row execute function fail()`,
    );
    try {
      for (const [index, place] of places.entries()) {
        const one = String(paths[index]);
        const created = await admin.post(
          place,
          index === 1 ? { CountryCode: 'NO', CountryName: 'Norway' } : others[index],
        );
        const changed = await admin.put(place === '/api/v1/Countries' ? place : one, others[index]);
        const deleted = await admin.delete(one);

        for (const response of [created, changed, deleted]) {
          expectRefused(response, 500, 'internal_error');
          expect(JSON.stringify(response.body)).not.to.match(/secret|fail\b|audit|trigger|P0001/i);
        }
      }
    } finally {
      await sql(world.acme, 'drop trigger fail on audit_log; drop function fail');
    }

    expect(
      await Promise.all(places.map(async place => (await admin.get(place)).body)),
    ).to.deep.equal(before);
    expect(await newestAudit(admin)).to.equal(audited);
    expect((await admin.post('/api/v1/UnitsOfMeasure', others[0])).status).to.equal(201);
  });
});
