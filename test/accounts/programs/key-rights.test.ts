import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { controlSql, useLogin, useTwoProcesses, useWorld } from '../../support/world.ts';
import { claimsOf } from '../auth/forge.ts';
import {
  addRole,
  changed,
  expectProblem,
  invitation,
  ownRecord,
  rolesPath,
  usersPath,
} from '../people/people-world.ts';

const path = '/api/v1/Programs';

/** The body of a new program. */
const program = (changes: object = {}) => ({
  Name: 'Till',
  Role: 'Member',
  Scope: 'All',
  EntityId: null,
  Networks: [],
  ...changes,
});

describe('the rights that a key of a program gives', () => {
  const world = useWorld({ TRUSTED_PROXIES: '127.0.0.1' });
  const admin = useLogin(world, 'acme');
  const urls = useTwoProcesses(world);

  /** Adds a program with a key. */
  const add = async (as: Client = admin, changes: object = {}) => {
    const { status, body } = await as.post(path, program(changes));
    expect(status, JSON.stringify(body)).to.equal(201);
    const made = await as.post(`${path}/${body.Id}/keys`, {});
    expect(made.status, JSON.stringify(made.body)).to.equal(201);
    const key: string = made.body.Key;

    return { id: body.Id, guid: body.Guid, key, client: world.anonymous.withToken(key) };
  };
  const accessTokenOf = async ({ guid, key }: { guid: string; key: string }): Promise<Client> => {
    const response = await fetch(`${world.url}/api/v1/auth/token`, {
      method: 'POST',
      body: new URLSearchParams({
        grant_type: 'client_credentials',
        client_id: guid,
        client_secret: key,
      }),
    });
    expect(response.status).to.equal(200);
    const { access_token: token } = (await response.json()) as { access_token: string };

    return world.anonymous.withToken(token);
  };
  const sessionOf = (client: Client) => claimsOf(client.tokens?.accessToken ?? '').sid;
  /** Lets the login of a client be six minutes old. */
  const age = (client: Client) =>
    controlSql(
      world,
      `update sessions set created_at = created_at - interval '6 minutes' where id = ?`,
      [sessionOf(client)],
    );

  it('a key is not returned again for an Idempotency-Key when its maker has lost a permission of the program since, or needs a new proof', async () => {
    const maker = await world.loginAs(world.acme, { permissions: [...permissions] });
    const { Role: makerRole } = (await ownRecord(world, maker)).body;
    const { Name: Role } = await addRole(admin, ['orders.read']);
    const { Id } = (await admin.post(path, program({ Role }))).body;
    const make = () => maker.post(`${path}/${Id}/keys`, {}, once);
    const once = { 'Idempotency-Key': randomUUID() };
    const setPermissions = (held: readonly string[]) =>
      controlSql(
        world,
        'update roles set permissions = ?::text[] where tenant_id = ? and name = ?',
        [`{${held.join(',')}}`, world.acme.id, makerRole],
      );

    const first = await make();
    expect(first.status).to.equal(201);
    expect((await make()).body).to.deep.equal(first.body);

    await setPermissions(['users.manage', 'users.read']);
    const lacking = await make();
    expectProblem(lacking, 403, 'forbidden');
    expect(JSON.stringify(lacking.body)).not.to.include(first.body.Key);

    await setPermissions(permissions);
    await age(maker);
    await eventually(async () => (await make()).body.code === 'verification_required', announcedMs);
    await controlSql(world, 'update sessions set verified_at = now() where id = ?', [
      sessionOf(maker),
    ]);
    expect((await make()).body).to.deep.equal(first.body);
    expect((await admin.get(`${path}/${Id}/keys`)).body).to.have.length(1);
  });

  it('the Idempotency-Key of another user, of this tenant or another, returns no key of theirs', async () => {
    const other = await world.login(world.globex);
    const maker = await world.loginAs(world.acme, { permissions: [...permissions] });
    const { id } = await add();
    const elsewhere = await add(other);
    const once = { 'Idempotency-Key': randomUUID() };

    const made = [
      await admin.post(`${path}/${id}/keys`, {}, once),
      await maker.post(`${path}/${id}/keys`, {}, once),
      await other.post(`${path}/${elsewhere.id}/keys`, {}, once),
    ];

    for (const { status, headers } of made) {
      expect(status).to.equal(201);
      expect(headers.get('idempotency-replayed')).to.equal(null);
    }
    expect(new Set(made.map(({ body }) => body.Key)).size).to.equal(3);
    expectProblem(await other.post(`${path}/${id}/keys`, {}, once), 404, 'not_found');
  });

  it('a session that was revoked a moment ago makes no key, also where a cache still has it as valid', async () => {
    const maker = await world.login(world.acme);
    const { id } = await add();
    expect((await maker.get(path)).status).to.equal(200); // its session is cached now

    const response = await withConnection(world.config.databaseUrl ?? '', async locked => {
      await locked.query('begin');
      await locked.query('lock table sessions in access exclusive mode');
      await locked.query('update sessions set revoked_at = now() where id = $1', [
        sessionOf(maker),
      ]);
      const sent = maker.post(`${path}/${id}/keys`, {});
      await eventually(async () => (await readLockWaiters(locked)).length > 0);
      await locked.query('commit');
      return sent;
    });

    expectProblem(response, 403, 'verification_required');
    expect((await admin.get(`${path}/${id}/keys`)).body).to.have.length(1);
  });

  it('an access token of a program grants no more than its key, and makes no key either', async () => {
    const { Name: Role } = await addRole(admin, ['users.manage', 'users.read']);
    const narrow = await add(admin, { Role });
    const token = await accessTokenOf(narrow);

    for (const client of [narrow.client, token]) {
      for (const response of [
        await client.post(path, program()),
        await client.put(`${path}/${narrow.id}`, program()),
        await client.post(rolesPath, { Name: 'Wide', Permissions: ['orders.read'] }),
        await client.post(usersPath, invitation()),
      ]) {
        expectProblem(response, 403, 'forbidden');
      }
      const made = await client.post(`${path}/${narrow.id}/keys`, {});
      expectProblem(made, 403, 'verification_required');
    }
  });

  it('nobody lets the role of a program grow by a permission that they lack, and a grown role counts in both processes', async () => {
    const role = await addRole(admin, ['users.read']);
    const { client } = await add(admin, { Role: role.Name });
    const grown = { Name: role.Name, Permissions: ['users.read', 'full.manage'] };
    const lacking = await world.loginAs(world.acme, {
      permissions: ['users.manage', 'users.read'],
    });
    const addStatus = (as: Client) => as.post('/api/v1/EntityStatus', { Title: 'New' });

    expectProblem(await lacking.put(`${rolesPath}/${role.Id}`, grown), 403, 'forbidden');
    expectProblem(await addStatus(client), 403, 'forbidden');

    expect((await admin.put(`${rolesPath}/${role.Id}`, grown)).status).to.equal(200);
    for (const url of urls) {
      await eventually(async () => (await addStatus(client.at(url))).status === 201, announcedMs);
    }
  });

  it('no file that is imported makes a program, a key, a user or a role', async () => {
    const { client } = await add(admin, { Role: 'Administrator' });

    for (const resource of ['Program', 'ProgramKey', 'User', 'Role']) {
      for (const as of [admin, client]) {
        const response = await as.send(
          'POST',
          `/api/v1/Imports?resource=${resource}`,
          'Name\nX\n',
          {
            'Content-Type': 'text/csv',
          },
        );
        expectProblem(response, 400, 'validation_failed');
      }
    }
  });

  it('a program makes no webhook of records that it may not read, and nobody gets programs or keys by one', async () => {
    const { Name: Role } = await addRole(admin, ['settings.write', 'users.read']);
    const { client } = await add(admin, { Role });
    const hook = (...Resources: string[]) => ({ Url: 'https://hooks.example.com/x', Resources });

    const refused = await client.post('/api/v1/Webhooks', hook('Activity'));
    expectProblem(refused, 403, 'forbidden');
    for (const name of ['Program', 'ProgramKey', 'User', 'Role']) {
      for (const as of [client, admin]) {
        const response = await as.post('/api/v1/Webhooks', hook(name));
        expectProblem(response, 400, 'validation_failed');
      }
    }
  });

  it('programs leave a tenant with a person who manages it, by no role, user or moment', async () => {
    const tenant = await world.provision('kept');
    const owner = await world.login(tenant);
    const role = await addRole(owner, ['users.manage', 'users.read']);
    const managing = { permissions: ['users.manage', 'users.read'] };
    const second = await world.loginAs(tenant, managing);
    const people = [owner, second];
    const records = await Promise.all(people.map(person => ownRecord(world, person, tenant)));
    const [ownerRecord, secondRecord] = records;
    const programs = [
      await add(owner, { Role: 'Administrator' }),
      await add(owner, { Role: 'Administrator' }),
    ];
    const [first] = programs;
    expect(role.Permissions).to.deep.equal(['users.read', 'users.manage']);

    const disabled = await first?.client.post(`${usersPath}/${ownerRecord?.body.Id}/disable`);
    expect(disabled?.status).to.equal(200);
    const secondRole = (
      await first?.client.get(`${rolesPath}?filter[Name]=${secondRecord?.body.Role}`)
    )?.body[0];
    for (const client of [first?.client, first && (await accessTokenOf(first))]) {
      for (const response of [
        await client?.put(`${rolesPath}/${secondRole.Id}`, {
          Name: secondRole.Name,
          Permissions: ['users.read'],
        }),
        await client?.put(
          `${usersPath}/${secondRecord?.body.Id}`,
          changed(secondRecord!, { Role: 'Member' }),
        ),
        await client?.post(`${usersPath}/${secondRecord?.body.Id}/disable`),
      ]) {
        expect(response?.body.detail).to.equal('A person must remain who manages the users.');
        expect(response?.status).to.equal(403);
      }
    }

    await first?.client.post(`${usersPath}/${ownerRecord?.body.Id}/enable`);
    for (let round = 0; round < 3; round++) {
      const responses = await Promise.all(
        programs.map(({ client }, i) =>
          client.at(urls[i] ?? '').post(`${usersPath}/${records[i]?.body.Id}/disable`),
        ),
      );
      expect(responses.map(({ status }) => status).sort()).to.deep.equal([200, 403]);
      for (const { body } of records) await first?.client.post(`${usersPath}/${body.Id}/enable`);
    }
  });
});
