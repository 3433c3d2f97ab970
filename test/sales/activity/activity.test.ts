import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { owners } from '../../../src/control/secret-box.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { findTenant } from '../../../src/operator/registry/tenants.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { invalidIds } from '../../support/invalid-ids.ts';
import { startServerBeside } from '../../support/server-beside.ts';
import { startSilentProxy } from '../../support/silent-proxy.ts';
import { controlSql, sql, useLogin, useWorld, type World } from '../../support/world.ts';
import { expectPositiveParameter, expectRefused, withField } from '../resources/expect.ts';
import { int, text } from '../resources/field-values.ts';

const path = '/api/v1/Activity';
const rights = ['full.read', 'full.manage'];

describe('activities', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  const record = async (body: object, client = admin): Promise<ApiResponse['body']> => {
    const response = await client.post(path, { ActivityCode: 1, ...body });
    expect(response.status, JSON.stringify(response.body)).to.equal(201);
    return response.body;
  };
  const idsOf = async (query: string, client = admin): Promise<number[]> => {
    const { status, body } = await client.get(`${path}${query}`);
    expect(status).to.equal(200);
    return body.map(({ Id }: { Id: number }) => Id);
  };

  it('a tenant without activities gets an empty list, not 404', async () => {
    const response = await globex.get(path);
    expect(response.status).to.equal(200);
    expect(response.body).to.deep.equal([]);
    expectRefused(await globex.get(`${path}/1`), 404, 'not_found');
  });

  describe('recording of activities', () => {
    it('a recorded activity returns 201, Location and every field as sent, and writes no audit entry', async () => {
      const body = {
        ActivityCode: -7,
        UserId: 2 ** 53 - 1,
        Comment: 'Called,\n\tleft a message',
        EntityId: 2 ** 53 - 1,
        Screen: 'Order / new',
        IPAddress: '2001:db8::1',
      };

      const started = Date.now();
      const { status, body: activity, headers } = await admin.post(path, body);

      expect(status).to.equal(201);
      expect(headers.get('location')).to.equal(`${path}/${activity.Id}`);
      expect(headers.get('cache-control')).to.equal('no-store');

      expect(activity).to.deep.equal({ Id: activity.Id, CreatedAt: activity.CreatedAt, ...body });
      expect(Object.keys(activity)).to.deep.equal([
        'Id',
        'CreatedAt',
        'ActivityCode',
        'UserId',
        'Comment',
        'EntityId',
        'Screen',
        'IPAddress',
      ]);
      expect(activity.CreatedAt).to.match(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      expect(Date.parse(activity.CreatedAt)).to.be.within(started - 1_000, Date.now() + 1_000);

      expect((await admin.get(`${path}/${activity.Id}`)).body).to.deep.equal(activity);
      const entries = await sql(world.acme, `select from audit_log where resource = 'Activity'`);
      expect(entries).to.deep.equal([]);
    });

    it('an activity has an ETag, from its creation on, and is not sent again to a client that has it', async () => {
      const created = await admin.post(path, { ActivityCode: 7 });
      const read = await admin.get(`${path}/${created.body.Id}`);
      expect(read.headers.get('etag')).to.match(/^"[\w-]{27}"$/);
      expect(created.headers.get('etag')).to.equal(read.headers.get('etag'));
      expect(read.headers.get('cache-control')).to.equal(
        'private, no-cache, max-age=0, must-revalidate',
      );

      const again = await admin.get(`${path}/${created.body.Id}`, {
        'If-None-Match': String(read.headers.get('etag')),
      });
      expect(again.status).to.equal(304);
      expect(again.body).to.equal('');
    });

    it('the ids of activities are JSON numbers, in records and in lists', async () => {
      const { Id } = await record({ UserId: 2 ** 53 - 1, EntityId: 2 ** 53 - 1 });
      const text = await (
        await fetch(`${world.url}${path}/${Id}`, {
          headers: { Authorization: `Bearer ${admin.tokens?.accessToken}` },
        })
      ).text();
      expect(text).to.include(`"Id":${Id},`).and.include('"UserId":9007199254740991,');
      expect(text).to.include('"EntityId":9007199254740991,');
    });

    it('user and address of an activity default to those of the caller, unless the body sets them', async () => {
      const guid = (await admin.get('/api/v1/auth/me')).body.userGuid;
      const absent = await record({});
      expect(absent).to.include({
        IPAddress: '127.0.0.1',
        Comment: null,
        EntityId: null,
        Screen: null,
      });

      const [user] = await controlSql<{ id: string }>(
        world,
        'select id from users where guid = ?',
        [guid],
      );
      expect(absent.UserId).to.equal(Number(user?.id));

      expect(await record({ UserId: 77, IPAddress: '10.1.2.3' })).to.include({
        UserId: 77,
        IPAddress: '10.1.2.3',
      });
      expect(await record({ UserId: null, IPAddress: null })).to.include({
        UserId: null,
        IPAddress: null,
      });
    });

    it('the real caller and address of an activity are stored, and no response contains them', async () => {
      const honest = await record({});
      const forged = await record({
        UserId: 77,
        IPAddress: '10.1.2.3',
        RecordedBy: 78,
        recordedFrom: '10.1.2.4',
      });

      const [row] = await sql<object>(
        world.acme,
        'select recorded_by, recorded_from from activities where id = $1',
        [forged.Id],
      );
      expect(row).to.deep.equal({ recorded_by: String(honest.UserId), recorded_from: '127.0.0.1' });
      expect(forged).not.to.have.any.keys('RecordedBy', 'RecordedFrom');
    });

    it('the service sets id and time of an activity, whatever the body contains', async () => {
      const recorded = await record({
        Id: 1_000_000,
        CreatedAt: '2001-01-01T00:00:00Z',
        createdAt: '2002-01-01T00:00:00Z',
      });
      expect(recorded.Id).to.be.below(1_000_000);
      expect(Date.parse(recorded.CreatedAt)).to.be.closeTo(Date.now(), 60_000);
    });

    it('an activity may have camelCase names, and two spellings with different values are rejected', async () => {
      const sent = {
        activityCode: 5,
        userId: 6,
        entityId: 7,
        comment: 'c',
        screen: 's',
        ipAddress: '10.0.0.1',
      };

      const { body } = await admin.post(path, sent);
      expect(body).to.include({ ActivityCode: 5, UserId: 6, EntityId: 7 });
      expect(body).to.include({ Comment: 'c', Screen: 's', IPAddress: '10.0.0.1' });

      const twice = await admin.post(path, { ActivityCode: 1, IPAddress: 'a', ipAddress: 'b' });
      expectRefused(twice, 400, 'validation_failed', ['IPAddress']);
    });

    const id = int({ min: 1, max: Number.MAX_SAFE_INTEGER, nullable: true });
    const fields = {
      ActivityCode: int({ required: true }),
      UserId: id,
      EntityId: id,
      Comment: text({ max: 4_000, multiline: true, mayBeEmpty: true, nullable: true }),
      Screen: text({ max: 255, mayBeEmpty: true, nullable: true }),
      IPAddress: text({ max: 45, mayBeEmpty: true, nullable: true }),
    };
    for (const [field, { good, bad }] of Object.entries(fields)) {
      it(`every valid ${field} of an activity is stored unchanged`, async () => {
        for (const [json, stored] of good({
          statusId: 0,
          currencyId: 0,
          countryCode: '',
          entityId: 0,
        })) {
          const { status, body } = await admin.post(
            path,
            withField({ ActivityCode: 1 }, field, json),
          );

          expect(status, json).to.equal(201);
          expect(body[field], json).to.deep.equal(stored);
          expect((await admin.get(`${path}/${body.Id}`)).body).to.deep.equal(body);
        }
      });

      it(`every invalid ${field} of an activity is rejected with the name of the field`, async () => {
        const before = await idsOf('?limit=1');
        for (const json of bad) {
          const response = await admin.post(path, withField({ ActivityCode: 1 }, field, json));
          expectRefused(response, 400, 'validation_failed', [field]);
        }
        expect(await idsOf('?limit=1')).to.deep.equal(before);
      });
    }

    it('ActivityCode is the only required field of an activity', async () => {
      for (const body of [undefined, '', {}, { Comment: 'no code' }]) {
        expectRefused(await admin.post(path, body), 400, 'validation_failed', ['ActivityCode']);
      }
    });
  });

  describe('list of activities', () => {
    it('the list of activities has the newest first, and orders those of the same time by id', async () => {
      const insert = `insert into activities (activity_code, created_at, user_id, recorded_by, recorded_from)
        select code, at::timestamptz, 4242, 1, 'test'
          from unnest($1::int[], $2::text[]) as sent (code, at) returning id`;
      const rows = await sql<{ id: string }>(world.acme, insert, [
        [1, 2, 3, 4],
        ['2020-01-02', '2020-01-03', '2020-01-01', '2020-01-02'],
      ]);
      const [a, b, c, d] = rows.map(({ id }) => Number(id));
      expect(await idsOf('?userId=4242')).to.deep.equal([b, d, a, c]);
    });

    it('the list of activities has 20 activities by default and at most 1,000', async () => {
      await sql(
        world.acme,
        `insert into activities (activity_code, user_id, recorded_by, recorded_from)
         select n, 4343, 1, 'test' from generate_series(1, 1005) n`,
      );

      const newest = await idsOf('?userId=4343&limit=1000');
      expect(newest).to.have.lengthOf(1_000);
      expect(await idsOf('?userId=4343')).to.deep.equal(newest.slice(0, 20));
      expect(await idsOf('?userId=4343&limit=1')).to.deep.equal(newest.slice(0, 1));
      expect(await idsOf('?userId=4343&limit=1001')).to.deep.equal(newest);
      expect(await idsOf(`?userId=4343&limit=${'9'.repeat(400)}`)).to.deep.equal(newest);
    });

    it('the list of activities can be filtered by user, by entity, and by both', async () => {
      const [user, entity] = [5_001, 6_001];
      const both = await record({ UserId: user, EntityId: entity });
      const ofUser = await record({ UserId: user, EntityId: entity + 1 });
      const ofEntity = await record({ UserId: user + 1, EntityId: entity });
      const neither = await record({ UserId: user + 1, EntityId: entity + 1 });

      expect(await idsOf(`?userId=${user}`)).to.deep.equal([ofUser.Id, both.Id]);
      expect(await idsOf(`?entityId=${entity}`)).to.deep.equal([ofEntity.Id, both.Id]);
      expect(await idsOf(`?userId=${user}&entityId=${entity}`)).to.deep.equal([both.Id]);
      expect(await idsOf(`?entityId=${entity}&limit=1&userId=${user + 1}`)).to.deep.equal([
        ofEntity.Id,
      ]);
      expect(await idsOf(`?userId=${user + 2}`)).to.deep.equal([]);

      expect((await idsOf('?limit=4')).toReversed()).to.deep.equal(
        [both, ofUser, ofEntity, neither].map(({ Id }) => Id),
      );
    });

    for (const name of ['limit', 'userId', 'entityId']) {
      it(`a list of activities is rejected if ${name} is not a positive integer or is repeated`, async () => {
        await expectPositiveParameter(admin, path, name);
      });
    }

    it('a list of activities is rejected if an id in the query exceeds the safe integers of JSON', async () => {
      for (const id of ['9007199254740992', '9223372036854775808', '1'.repeat(30)]) {
        expectRefused(await admin.get(`${path}?userId=${id}`), 400, 'validation_failed', [
          'userId',
        ]);
      }
      expect(await idsOf('?userId=9007199254740990')).to.deep.equal([]);
    });

    it('unknown query parameters of the list of activities are ignored', async () => {
      expect(
        await idsOf('?limit=1&UserId=99999&LIMIT=0&order=asc&page=-1&select[]=x'),
      ).to.have.lengthOf(1);
    });

    it('the list of activities contains no activity of another tenant', async () => {
      const own = await record({ UserId: 7_001 });
      expect(await idsOf('?userId=7001', globex)).to.deep.equal([]);
      expectRefused(await globex.get(`${path}/${own.Id}`), 404, 'not_found');
    });
  });

  it('a malformed id of an activity gets 404', async () => {
    for (const id of [...invalidIds, 'abc']) {
      expectRefused(await admin.get(`${path}/${id}`), 404, 'not_found');
    }
  });

  it('reading activities requires full.read, recording them full.manage, and neither implies the other', async () => {
    const { Id } = await record({});
    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });
    const writer = await world.loginAs(world.acme, { permissions: ['full.manage'] });
    expect((await reader.get(path)).status).to.equal(200);
    expect((await reader.get(`${path}/${Id}`)).status).to.equal(200);
    expectRefused(await reader.post(path, { ActivityCode: 1 }), 403, 'forbidden');
    expectRefused(await writer.get(path), 403, 'forbidden');
    expectRefused(await writer.get(`${path}/${Id}`), 403, 'forbidden');
    expect((await writer.post(path, { ActivityCode: 1 })).status).to.equal(201);
  });

  describe('callers of scope Self', () => {
    let self: Client;
    let withoutEntity: Client;
    let own: number;
    let other: number;

    before(async () => {
      const entity = async (Name: string): Promise<number> =>
        (await admin.post('/api/v1/Entities', { Name, EntityType: 'customer' })).body.Id;
      [own, other] = [await entity('Own'), await entity('Other')];
      self = await world.loginAs(world.acme, { permissions: rights, scope: 'Self', entityId: own });
      withoutEntity = await world.loginAs(world.acme, {
        permissions: rights,
        scope: 'Self',
        entityId: null,
      });
    });

    for (const spelling of ['EntityId', 'EntityID', 'entityId', 'entityID']) {
      it(`for a caller of scope Self, the entity of the caller replaces every value of ${spelling}`, async () => {
        for (const sent of [
          other,
          own,
          null,
          String(other),
          'x',
          0,
          -1,
          1.5,
          true,
          [other],
          { id: other },
          2 ** 60,
        ]) {
          const activity = await record({ [spelling]: sent }, self);

          expect(activity.EntityId, JSON.stringify(sent)).to.equal(own);
          expect((await admin.get(`${path}/${activity.Id}`)).body.EntityId).to.equal(own);
        }
      });
    }

    it('for a caller of scope Self, the entity of the caller replaces all spellings of EntityId', async () => {
      const sent = { EntityId: other, EntityID: other + 1, entityId: 'x', entityID: null };
      expect((await record(sent, self)).EntityId).to.equal(own);
      const twice = `{"ActivityCode":1,"EntityId":${own},"EntityId":${other}}`;
      expect((await self.post(path, twice)).body.EntityId).to.equal(own);
      const escaped = `{"ActivityCode":1,"Entity\\u0049d":${other}}`;
      expect((await self.post(path, escaped)).body.EntityId).to.equal(own);
    });

    it('an activity that a caller of scope Self sends without EntityId is stored without an entity', async () => {
      const { status, body } = await self.post(`${path}?EntityId=${other}&entityId=${other}`, {
        ActivityCode: 1,
        Nested: { EntityId: other },
        ENTITYID: other,
      });
      expect(status).to.equal(201);
      expect(body.EntityId).to.equal(null);
    });

    it('for a caller of scope Self without an entity, EntityId becomes null', async () => {
      for (const sent of [own, null, 'x']) {
        expect((await record({ EntityId: sent }, withoutEntity)).EntityId).to.equal(null);
      }
    });

    it('for a caller of scope All, EntityId is stored as sent', async () => {
      expect((await record({ EntityId: other })).EntityId).to.equal(other);
      expect((await record({ EntityID: other })).EntityId).to.equal(null);
      expectRefused(
        await admin.post(path, { ActivityCode: 1, EntityId: 'x' }),
        400,
        'validation_failed',
        ['EntityId'],
      );
    });

    it('a caller of scope Self sees only the activities of their entity', async () => {
      const ownActivity = await record({ EntityId: own });
      const otherActivity = await record({ EntityId: other });
      const unowned = await record({ EntityId: null });

      expect(await idsOf('?limit=1000', self))
        .to.include(ownActivity.Id)
        .and.not.include(otherActivity.Id)
        .and.not.include(unowned.Id);

      expect(await idsOf(`?entityId=${own}&limit=1`, self)).to.deep.equal([ownActivity.Id]);
      expect(await idsOf(`?entityId=${other}`, self)).to.deep.equal([]);
      expect((await self.get(`${path}/${ownActivity.Id}`)).body).to.deep.equal(ownActivity);

      for (const { Id } of [otherActivity, unowned]) {
        expectRefused(await self.get(`${path}/${Id}`), 404, 'not_found');
      }
    });

    it('a caller of scope Self without an entity sees no activity', async () => {
      const { Id } = await record({ EntityId: null });
      for (const query of ['', `?entityId=${own}`]) {
        expect(await idsOf(query, withoutEntity)).to.deep.equal([]);
      }
      expectRefused(await withoutEntity.get(`${path}/${Id}`), 404, 'not_found');
    });
  });

  describe('recorded activities', () => {
    before(async () => {
      await record({ Comment: 'recorded' });
      expect((await admin.post('/api/v1/OrderStatuses', { Name: 'audited' })).status).to.equal(201);
    });

    it('an activity has no PUT, PATCH or DELETE', async () => {
      const activity = await record({ Comment: 'for ever' });
      for (const method of ['PUT', 'PATCH', 'DELETE']) {
        const one = await admin.send(method, `${path}/${activity.Id}`, { Comment: 'changed' });
        expectRefused(one, 405, 'method_not_allowed');
        expect(one.headers.get('allow')?.split(', ')).to.include('GET').and.not.include(method);
        expectRefused(await admin.send(method, path), 405, 'method_not_allowed');
      }
      expect((await admin.get(`${path}/${activity.Id}`)).body).to.deep.equal(activity);
    });

    for (const table of ['activities', 'audit_log']) {
      for (const statement of [
        `update ${table} set created_at = now()`,
        `update ${table} set created_at = now() where false`,
        `delete from ${table}`,
        `truncate ${table}`,
      ]) {
        it(`neither the service nor the owner of the tables may execute "${statement}"`, async () => {
          const rows = `select count(*)::int, max(created_at) from ${table}`;
          const before = await sql<{ count: number }>(world.acme, rows);
          expect(before[0]?.count).to.be.above(0);
          expect(await sqlState(await serviceUrl(world), statement)).to.equal('42501');
          expect(await sqlState(world.acme.adminUrl, statement)).to.equal('SB003');
          expect(await sql(world.acme, rows)).to.deep.equal(before);
        });
      }
    }

    it('an activity whose transaction did not begin is not stored, and its client receives an error', async () => {
      const proxy = await startSilentProxy();
      const server = await startServerBeside(world, {
        DATABASE_URL: proxy.through(world.installation.controlUrl),
      });
      const count = async () => (await sql(world.acme, 'select from activities')).length;

      try {
        const client = admin.at(server.url);
        expect((await client.post(path, { ActivityCode: 1 })).status).to.equal(201);

        const before = await count();
        let broken = 0;
        proxy.edit(world.acme.database, packet => {
          const at = packet.indexOf('begin\0');
          if (at >= 0) broken += packet.write('wrong', at);
        });

        for (const target of [path, '/api/v1/EntityStatus']) {
          // With a key, a change takes several statements.
          const headers = { 'Idempotency-Key': randomUUID() };
          const { status } = await client.post(
            target,
            { ActivityCode: 1, Title: 'No actor' },
            headers,
          );
          expect(status, target).to.be.at.least(500);
        }

        expect(broken).to.be.above(0);
        expect(await count()).to.equal(before);
      } finally {
        await server.stop();
        await proxy.close();
      }
    });

    it('every table that the service may write rejects a change without an actor', async () => {
      // Rows that the service itself keeps of an endpoint while it sends: nobody acts.
      const ofDispatcher = `('webhook_secrets', 'webhook_messages', 'webhook_deliveries')`;
      const unguarded = `
        select distinct c.relname::text as name from pg_class c, aclexplode(relacl) a
         where relnamespace = 'public'::regnamespace and relkind = 'r' and grantee <> relowner
           and privilege_type in ('INSERT', 'UPDATE', 'DELETE') and c.relname not in ${ofDispatcher}
           and not exists (select from pg_trigger
                            where tgrelid = c.oid and tgname in ('audit_change', 'require_actor'))`;
      expect(await sql(world.acme, unguarded)).to.deep.equal([]);
    });

    it('the service cannot disable the trigger, nor assume a role that can, nor insert audit entries', async () => {
      const [{ owner } = { owner: '' }] = await sql<{ owner: string }>(
        world.acme,
        `select tableowner as owner from pg_tables where tablename = 'activities'`,
      );
      const url = await serviceUrl(world);

      for (const statement of [
        'alter table activities disable trigger all',
        'drop trigger append_only on audit_log',
        'create or replace function refuse_change() returns trigger language plpgsql as $$ begin return null; end $$',
        `set session_replication_role = 'replica'`,
        'drop table activities',
        `set role "${owner}"`,
        `insert into audit_log (action, resource, record_key, database_user) values ('delete', 'Country', 'NO', 'me')`,
      ]) {
        expect(await sqlState(url, statement), statement).to.equal('42501');
      }
    });
  });
});

/**
 * Returns the URL with which the service connects to the database of acme: with the login role
 * of the tenant.
 */
async function serviceUrl({ installation, acme }: World): Promise<string> {
  const { roleName: user, rolePassword } = await findTenant(installation, acme.slug);
  const password = installation.secrets
    .open(rolePassword, owners.rolePassword(acme.guid))
    .toString();
  return databaseUrl(acme.adminUrl, acme.database, { user, password });
}

/** Runs a statement; returns its SQLSTATE if it fails, or undefined. */
function sqlState(url: string, statement: string): Promise<string | undefined> {
  return withConnection(url, async client => {
    try {
      await client.query(statement);
      return undefined;
    } catch (error) {
      return (error as { code?: string }).code;
    }
  });
}
