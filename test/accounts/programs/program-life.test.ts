import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { controlSql, useLogin, useTwoProcesses, useWorld } from '../../support/world.ts';
import {
  addRole,
  changed,
  expectProblem,
  invitation,
  ownRecord,
  usersPath,
} from '../people/people-world.ts';

const path = '/api/v1/Programs';
const countries = '/api/v1/Countries';

/** The body of a new program. */
const program = (changes: object = {}) => ({
  Name: 'Till',
  Role: 'Member',
  Scope: 'All',
  EntityId: null,
  Networks: [],
  ...changes,
});

describe('the life of a program', () => {
  const world = useWorld({ TRUSTED_PROXIES: '127.0.0.1' });
  const admin = useLogin(world, 'acme');
  const other = useLogin(world, 'globex');
  const urls = useTwoProcesses(world);

  const add = async (as: Client = admin, changes: object = {}) => {
    const response = await as.post(path, program(changes));
    expect(response.status, JSON.stringify(response.body)).to.equal(201);
    return response;
  };
  const addKey = async (id: number, as: Client = admin) => {
    const response = await as.post(`${path}/${id}/keys`, {});
    expect(response.status, JSON.stringify(response.body)).to.equal(201);
    return { ...response.body, client: world.anonymous.withToken(response.body.Key) };
  };
  const statuses = (client: Client, headers = {}): Promise<number[]> =>
    Promise.all(
      urls.map(async url => (await client.at(url).get('/api/v1/auth/me', headers)).status),
    );
  const settled = (client: Client, status: number, headers = {}) =>
    eventually(
      async () => (await statuses(client, headers)).every(each => each === status),
      announcedMs,
    );

  it('a program is made, gets keys, uses them, loses one, is narrowed, disabled and enabled, in two processes', async () => {
    const created = await add();
    const { Id, Guid } = created.body;
    expect(created.headers.get('location')).to.match(new RegExp(`${path}/${Id}$`));
    expect(created.body).to.deep.include({
      Name: 'Till',
      Role: 'Member',
      Scope: 'All',
      EntityId: null,
      Networks: [],
      IsDisabled: false,
      Keys: 0,
      LastUsedAt: null,
    });

    const first = await addKey(Id);
    const second = await addKey(Id);
    await settled(first.client, 200);
    await settled(second.client, 200);
    expect((await first.client.get('/api/v1/auth/me')).body).to.include({
      userGuid: Guid,
      firstName: 'Till',
      lastName: '',
      tokenId: first.Id,
    });

    expect((await admin.delete(`${path}/${Id}/keys/${first.Id}`)).status).to.equal(204);
    await settled(first.client, 401);
    expect(await statuses(second.client)).to.deep.equal([200, 200]);

    const replaced = await admin.put(
      `${path}/${Id}`,
      program({ Name: 'Till 2', Networks: ['10.1.0.0/16', '192.0.2.7', '2001:db8::/32'] }),
    );
    expect(replaced.body.Networks).to.deep.equal(['10.1.0.0/16', '192.0.2.7/32', '2001:db8::/32']);
    await settled(second.client, 401);
    await settled(second.client, 200, { 'X-Forwarded-For': '192.0.2.7' });

    await admin.put(`${path}/${Id}`, program());
    await settled(second.client, 200);
    expect((await admin.post(`${path}/${Id}/disable`)).body.IsDisabled).to.equal(true);
    await settled(second.client, 401);
    expect((await admin.post(`${path}/${Id}/enable`)).body.IsDisabled).to.equal(false);
    await settled(second.client, 200);

    const keys = (await admin.get(`${path}/${Id}/keys`)).body;
    expect(keys.map((key: { Id: string }) => key.Id)).to.have.members([first.Id, second.Id]);
    expect(keys.every((key: object) => !('Key' in key))).to.equal(true);
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.LastUsedAt);
    expect((await admin.get(`${path}/${Id}`)).body.Keys).to.equal(1);
  });

  it('a program is no user of the list of people, and a person is none of the list of programs', async () => {
    const { body } = await add();
    const me = await ownRecord(world, admin);

    expect((await admin.get(`${usersPath}/${body.Id}`)).status).to.equal(404);
    expect((await admin.get(`${path}/${me.body.Id}`)).status).to.equal(404);
    const users = (await admin.get(usersPath)).body;
    expect(users.some(({ Id }: { Id: number }) => Id === body.Id)).to.equal(false);
    const programs = (await admin.get(path)).body;
    expect(programs.map(({ Id }: { Id: number }) => Id)).to.include(body.Id);

    for (const change of [
      () => admin.put(`${usersPath}/${body.Id}`, changed(me)),
      () => admin.delete(`${usersPath}/${body.Id}`),
      () => admin.post(`${usersPath}/${body.Id}/disable`),
      () => admin.delete(`${usersPath}/${body.Id}/sessions`),
      () => admin.put(`${path}/${me.body.Id}`, program()),
      () => admin.post(`${path}/${me.body.Id}/disable`),
      () => admin.post(`${path}/${me.body.Id}/keys`, {}),
    ]) {
      expectProblem(await change(), 404, 'not_found');
    }
  });

  it('another tenant finds neither the program nor its keys, and its key opens its own tenant alone', async () => {
    const { body } = await add();
    const key = await addKey(body.Id);

    for (const response of await Promise.all([
      other.get(`${path}/${body.Id}`),
      other.get(`${path}/${body.Id}/keys`),
      other.get(`${path}/${body.Id}/keys/${key.Id}`),
      other.put(`${path}/${body.Id}`, program()),
      other.post(`${path}/${body.Id}/disable`),
      other.post(`${path}/${body.Id}/keys`, {}),
      other.delete(`${path}/${body.Id}/keys/${key.Id}`),
    ])) {
      expectProblem(response, 404, 'not_found');
    }
    const own = await add(other);
    expectProblem(await other.delete(`${path}/${own.body.Id}/keys/${key.Id}`), 404, 'not_found');
    expect((await other.get(path)).body.map(({ Id }: { Id: number }) => Id)).to.deep.equal([
      own.body.Id,
    ]);
    const me = await key.client.get('/api/v1/auth/me', { 'X-Tenant': world.globex.guid });
    expect(me.body.tenantGuid).to.equal(world.acme.guid);
  });

  it('a key ends after 365 days, or when the request says, at most after 731, and a program has five at most', async () => {
    const { body } = await add();
    const keys = `${path}/${body.Id}/keys`;
    const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString();
    const days = ({ body }: ApiResponse) =>
      Math.round((Date.parse(body.ExpiresAt) - Date.now()) / 86_400_000);

    expect(days(await admin.post(keys, {}))).to.equal(365);
    expect(days(await admin.post(keys, { ExpiresAt: inDays(731 - 1 / 24) }))).to.equal(731);
    for (const ExpiresAt of [inDays(732), inDays(-1), 'tomorrow']) {
      expectProblem(await admin.post(keys, { ExpiresAt }), 400, 'validation_failed');
    }
    for (let i = 0; i < 3; i++) expect((await admin.post(keys, {})).status).to.equal(201);
    expectProblem(await admin.post(keys, {}), 400, 'limit_reached');

    const [newest] = (await admin.get(keys)).body;
    await admin.delete(`${keys}/${newest.Id}`);
    expect((await admin.post(keys, {})).status).to.equal(201);
  });

  it('a key is returned again for the same Idempotency-Key, whose row has it sealed, and no table has it', async () => {
    const { body } = await add();
    const keys = `${path}/${body.Id}/keys`;
    const once = { 'Idempotency-Key': randomUUID() };

    const first = await admin.post(keys, {}, once);
    const again = await admin.post(keys, {}, once);

    expect(again.headers.get('idempotency-replayed')).to.equal('true');
    expect(again.body).to.deep.equal(first.body);
    expect((await admin.get(keys)).body).to.have.length(1);

    const tables = await controlSql<{ name: string }>(
      world,
      `select tablename as name from pg_tables where schemaname = 'public'`,
    );
    for (const { name } of tables) {
      const [found] = await controlSql<{ count: number }>(
        world,
        `select count(*)::int as count from ${name} t where to_jsonb(t)::text like ?`,
        [`%${first.body.Key}%`],
      );
      expect(found?.count, name).to.equal(0);
    }
    expect(world.logs.join('')).not.to.include(first.body.Key);
  });

  it('a repeated request whose key was sealed under a lost master key is refused, and makes no second key', async () => {
    const { body } = await add();
    const keys = `${path}/${body.Id}/keys`;
    const once = { 'Idempotency-Key': randomUUID() };
    await admin.post(keys, {}, once);
    await controlSql(
      world,
      `update idempotency_keys set rows = replace(rows, '"sealed":"', '"sealed":"AAAA') where key = ?`,
      [once['Idempotency-Key']],
    );

    expectProblem(await admin.post(keys, {}, once), 422, 'idempotency_key_reused');
    expect((await admin.get(keys)).body).to.have.length(1);
  });

  it('the audit log names who made, changed and gave keys to a program, and no entry has a key or its hash', async () => {
    const { body } = await add();
    const key = await addKey(body.Id);
    await admin.put(`${path}/${body.Id}`, program({ Name: 'Other', Networks: ['10.0.0.0/8'] }));
    await admin.delete(`${path}/${body.Id}/keys/${key.Id}`);
    const me = (await admin.get('/api/v1/auth/me')).body;

    const log = (resource: string, id: string | number) =>
      admin.get(`/api/v1/AuditLog?resource=${resource}&key=${id}`);
    const [changedEntry, made] = (await log('Program', body.Id)).body;
    const [revoked, keyMade] = (await log('ProgramKey', key.Id)).body;

    for (const entry of [changedEntry, made, revoked, keyMade]) {
      expect(entry.UserGuid).to.equal(me.userGuid);
    }
    expect(made.After).to.deep.include({ Name: 'Till', Role: 'Member', IsDisabled: false });
    expect(changedEntry.After).to.deep.include({ Name: 'Other', Networks: ['10.0.0.0/8'] });
    expect(Object.keys(keyMade.After).sort()).to.deep.equal([
      'CreatedAt',
      'ExpiresAt',
      'Id',
      'MadeBy',
      'Prefix',
      'ProgramId',
      'RevokedAt',
    ]);
    expect(revoked.After.RevokedAt).to.be.a('string');
    const text = JSON.stringify([changedEntry, made, revoked, keyMade]);
    expect(text).not.to.include(key.Key);
    expect((await log('User', body.Id)).body).to.deep.equal([]);
    expectProblem(
      await admin.get('/api/v1/AuditLog?resource=Program,Country'),
      400,
      'validation_failed',
    );
  });

  it('all keys that a person has made are revoked at once, and no other one', async () => {
    const maker = await world.loginAs(world.acme, { permissions: [...permissions] });
    const makerId = (await ownRecord(world, maker)).body.Id;
    const { body } = await add();
    const ofMaker = [await addKey(body.Id, maker), await addKey(body.Id, maker)];
    const ofAdmin = await addKey(body.Id);

    expectProblem(await other.post(`${path}/keys/revoke`, {}), 400, 'validation_failed');
    const elsewhere = await other.post(`${path}/keys/revoke`, { MadeBy: makerId });
    expect(elsewhere.body).to.deep.equal({ Revoked: 0 });
    const { status, body: result } = await admin.post(`${path}/keys/revoke`, { MadeBy: makerId });

    expect(status).to.equal(200);
    expect(result).to.deep.equal({ Revoked: 2 });
    for (const { client } of ofMaker) await settled(client, 401);
    expect(await statuses(ofAdmin.client)).to.deep.equal([200, 200]);
    const again = await admin.post(`${path}/keys/revoke`, { MadeBy: makerId });
    expect(again.body).to.deep.equal({ Revoked: 0 });
  });

  it('nobody makes, changes, disables or gives a key to a program with a permission that they lack, nor revokes one', async () => {
    const role = await addRole(admin, ['orders.read']);
    const wide = await add(admin, { Role: role.Name });
    const key = await addKey(wide.body.Id);
    const small = await addRole(admin, ['users.read']);
    const lacking = await world.loginAs(world.acme, {
      permissions: ['users.manage', 'users.read'],
    });
    const lackingId = (await ownRecord(world, lacking)).body.Id;
    const own = await add(lacking, { Role: small.Name });

    for (const response of [
      await lacking.post(path, program({ Role: role.Name })),
      await lacking.put(`${path}/${own.body.Id}`, program({ Role: role.Name })),
      await lacking.put(`${path}/${wide.body.Id}`, program({ Role: small.Name })),
      await lacking.post(`${path}/${wide.body.Id}/disable`),
      await lacking.post(`${path}/${wide.body.Id}/enable`),
      await lacking.post(`${path}/${wide.body.Id}/keys`, {}),
      await lacking.delete(`${path}/${wide.body.Id}/keys/${key.Id}`),
      await lacking.post(`${path}/keys/revoke`, { MadeBy: key.MadeBy }),
    ]) {
      expectProblem(response, 403, 'forbidden');
    }
    expect(await statuses(key.client)).to.deep.equal([200, 200]);

    await addKey(own.body.Id, lacking);
    expect((await lacking.post(`${path}/keys/revoke`, { MadeBy: lackingId })).body).to.deep.equal({
      Revoked: 1,
    });
    const limited = await world.loginAs(world.acme, {
      permissions: [...permissions],
      scope: 'Self',
    });
    expectProblem(await limited.post(path, program()), 403, 'forbidden');
  });

  it('a program grants no more than it has, and cannot leave a tenant without a person who manages it', async () => {
    const tenant = await world.provision('managed');
    const owner = await world.login(tenant);
    const manager = await addRole(owner, ['users.manage', 'users.read']);
    const all = await add(owner, { Role: 'Administrator' });
    const some = await add(owner, { Role: manager.Name });
    const [full, narrow] = [await addKey(all.body.Id, owner), await addKey(some.body.Id, owner)];
    const ownerRecord = (await owner.get(usersPath)).body[0];

    expectProblem(
      await narrow.client.put(`${path}/${some.body.Id}`, program({ Role: 'Administrator' })),
      403,
      'forbidden',
    );
    expectProblem(await narrow.client.post(path, program()), 403, 'forbidden');
    expectProblem(
      await narrow.client.post(usersPath, invitation({ Role: 'Administrator' })),
      403,
      'forbidden',
    );

    for (const change of [
      () => full.client.post(`${usersPath}/${ownerRecord.Id}/disable`),
      () =>
        full.client.put(`${usersPath}/${ownerRecord.Id}`, {
          FirstName: 'Nora',
          LastName: 'Newman',
          Role: 'Administrator',
          Scope: 'Self',
          EntityId: null,
        }),
      () =>
        full.client.put(`${usersPath}/${ownerRecord.Id}`, {
          FirstName: 'Nora',
          LastName: 'Newman',
          Role: 'Member',
          Scope: 'All',
          EntityId: null,
        }),
    ]) {
      const response = await change();
      expectProblem(response, 403, 'forbidden');
      expect(response.body.detail).to.equal('A person must remain who manages the users.');
    }
    expect((await owner.get(usersPath)).status).to.equal(200);
    expectProblem(await full.client.post(`${path}/${all.body.Id}/disable`), 400, 'wrong_state');
  });

  it('a program of an entity reads the data of its entity, and its type in the current user', async () => {
    const entity = { Name: 'North', EntityType: 'supplier' };
    const { Id } = (await admin.post('/api/v1/Entities', entity)).body;
    const { body } = await add(admin, { Scope: 'Self', EntityId: Id });
    const { client } = await addKey(body.Id);

    expect((await client.get('/api/v1/auth/me')).body).to.include({
      userEntityId: Id,
      entityType: 'supplier',
      scope: 'Self',
    });
    expectProblem(await admin.post(path, program({ EntityId: 9_999 })), 400, 'validation_failed');
  });

  it('networks that are none, or too many, are refused, and the errors of all fields are named', async () => {
    const networks = ['10.0.0.1/8', 'example.com', '10.0.0.0/33', '::1%eth0', ''];
    for (const each of networks) {
      expectProblem(
        await admin.post(path, program({ Networks: [each] })),
        400,
        'validation_failed',
      );
    }
    const many = Array.from({ length: 21 }, (_, i) => `10.0.0.${i}`);
    expectProblem(await admin.post(path, program({ Networks: many })), 400, 'validation_failed');

    const created = await add();
    const { Networks: _, ...without } = program();
    const widened = await admin.put(`${path}/${created.body.Id}`, without);
    expect(Object.keys(widened.body.errors)).to.deep.equal(['Networks']);

    const { body } = await admin.post(path, program({ Name: '', Role: 'Nobody', Networks: ['x'] }));
    expect(Object.keys(body.errors)).to.include.members(['Name', 'Role']);
  });

  it('while a process of a former build runs, no program and no key is made, and keys can be revoked', async () => {
    const { body } = await add();
    const key = await addKey(body.Id);
    const former = randomUUID();
    await controlSql(
      world,
      `insert into processes (id, kind, host, pid, build, tenant_head, control_head, seen_at)
       values (?, 'service', 'elsewhere', 17, '0.2.0', '0001-first-schema', '0001-first-schema', now() + interval '50 seconds')`,
      [former],
    );

    for (const response of [
      await admin.post(path, program()),
      await admin.post(`${path}/${body.Id}/keys`, {}),
    ]) {
      expectProblem(response, 503, 'migration_pending');
      expect(response.headers.get('retry-after')).to.equal('10');
    }
    expect(await statuses(key.client)).to.deep.equal([200, 200]);
    expect((await admin.delete(`${path}/${body.Id}/keys/${key.Id}`)).status).to.equal(204);

    await controlSql(world, 'delete from processes where id = ?', [former]);
    await addKey(body.Id);
  });

  it('a change of a program is refused if it has changed since it was read, and is made once for one Idempotency-Key', async () => {
    const created = await add();
    const tag = created.headers.get('etag') ?? '';
    const own = `${path}/${created.body.Id}`;
    await addKey(created.body.Id); // no change of the program
    expect((await admin.put(own, program({ Name: 'B' }), { 'If-Match': tag })).status).to.equal(
      200,
    );
    expectProblem(
      await admin.put(own, program({ Name: 'C' }), { 'If-Match': tag }),
      412,
      'precondition_failed',
    );

    const once = { 'Idempotency-Key': randomUUID() };
    const first = await admin.post(path, program({ Name: 'Once' }), once);
    const again = await admin.post(path, program({ Name: 'Once' }), once);
    expect(again.body).to.deep.equal(first.body);
    expect((await admin.get(`${path}?filter[Name]=Once`)).body).to.have.length(1);
  });

  it('a webhook of a program ends with the rights of the program', async () => {
    const role = await addRole(admin, ['settings.write', 'full.read']);
    const { body } = await add(admin, { Role: role.Name });
    const { client } = await addKey(body.Id);
    const hook = { Url: 'https://hooks.example.com/x', Resources: ['Country'] };

    const created = await client.post('/api/v1/Webhooks', hook);
    expect(created.status, JSON.stringify(created.body)).to.equal(201);
    expect(created.body.UserId).to.equal(body.Id);
    await admin.post(`${path}/${body.Id}/disable`);
    await admin.post(countries, { CountryCode: 'CH', CountryName: 'Switzerland' });

    await eventually(
      async () =>
        (await admin.get(`/api/v1/Webhooks/${created.body.Id}`)).body.DisabledReason === 'rights',
    );
  });
});
