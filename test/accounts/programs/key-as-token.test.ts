import { expect } from 'chai';
import { createProgramKey, programKeyPattern } from '../../../src/control/program-key.ts';
import { follow } from '../../sales/events/follow.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { controlSql, sql, useTwoProcesses, useWorld } from '../../support/world.ts';
import { storeKey, storeProgram } from './stored-programs.ts';

const me = '/api/v1/auth/me';
const path = '/api/v1/EntityStatus';

describe('the key of a program as bearer token', () => {
  const world = useWorld({ TRUSTED_PROXIES: '127.0.0.1' });
  const urls = useTwoProcesses(world);

  /** Adds a program of acme with a key, and returns a client with the key. */
  async function addProgram(networks: string[] = []) {
    const program = await storeProgram(world, world.acme, { networks });
    const { key, id } = await storeKey(world, world.acme, program.id);

    return { ...program, key, keyId: id, client: world.anonymous.withToken(key) };
  }

  const giveRole = (id: number, role: string) =>
    controlSql(
      world,
      `update users set role_id = r.id from roles r
        where users.id = ? and r.tenant_id = users.tenant_id and r.name = ?`,
      [id, role],
    );
  const from = (address: string) => ({ 'X-Forwarded-For': address });
  async function accessTokenOf(guid: string, key: string): Promise<string> {
    const response = await fetch(`${world.url}/api/v1/auth/token`, {
      method: 'POST',
      headers: from('10.1.2.3'),
      body: new URLSearchParams({
        grant_type: 'client_credentials',
        client_id: guid,
        client_secret: key,
      }),
    });
    return ((await response.json()) as { access_token: string }).access_token;
  }
  /** Reads a response to its end, and returns the error that cuts it off. */
  async function errorAtEnd(reader: ReadableStreamDefaultReader): Promise<unknown> {
    try {
      while (!(await reader.read()).done);
      return undefined;
    } catch (error) {
      return error;
    }
  }
  const inBoth = (client: Client, headers = {}): Promise<ApiResponse[]> =>
    Promise.all(urls.map(url => client.at(url).get(path, headers)));
  const codes = async (client: Client, headers = {}) =>
    (await inBoth(client, headers)).map(({ status, body }) => body.code ?? status);
  const lineOf = async ({ headers }: ApiResponse) => {
    const traceId = headers.get('x-request-id') ?? '–';
    const line = await eventually(() => world.logs.find(each => each.includes(traceId)));
    return JSON.parse(line);
  };

  it('a key has 160 random bits, a prefix that names it and a checksum, and no two are equal', () => {
    const keys = Array.from({ length: 1_000 }, createProgramKey);

    for (const { key, prefix } of keys) {
      expect(key).to.match(new RegExp(`^${programKeyPattern}$`));
      expect(key.startsWith(prefix)).to.equal(true);
      expect(prefix).to.have.length(12);
    }
    expect(new Set(keys.map(({ key }) => key)).size).to.equal(1_000);
  });

  it('a program calls both processes with its key alone, as itself, in its own tenant, whatever X-Tenant says', async () => {
    const { client, guid, keyId } = await addProgram();
    const other = { 'X-Tenant': world.globex.guid };

    const responses = await Promise.all(urls.map(url => client.at(url).get(me, other)));

    for (const response of responses) {
      expect(response.status).to.equal(200);
      expect(response.body).to.deep.include({
        tokenId: keyId,
        userGuid: guid,
        firstName: 'Till',
        lastName: '',
        tenantGuid: world.acme.guid,
        role: 'Member',
        scope: 'All',
        userEntityId: null,
        entityType: null,
      });
      expect((await lineOf(response)).otherTenantNamed).to.equal(true);
    }
  });

  it('the audit entry of a change names the program that has made it', async () => {
    const { client, id, guid } = await addProgram();
    await giveRole(id, 'Administrator');

    const country = { CountryCode: 'AT', CountryName: 'Austria' };
    expect((await client.post('/api/v1/Countries', country)).status).to.equal(201);

    const { body } = await client.get('/api/v1/AuditLog?resource=Country&key=AT');
    expect(body).to.have.length(1);
    expect(body[0]).to.include({ UserId: id, UserGuid: guid });
  });

  const losses: [string, string, string][] = [
    ['key is revoked', 'update program_keys set revoked_at = now() where id = ?', 'invalid_token'],
    [
      'key has ended',
      `update program_keys set expires_at = now() - interval '1 second' where id = ?`,
      'token_expired',
    ],
    ['key is removed', 'delete from program_keys where id = ?', 'invalid_token'],
    [
      'record is disabled',
      'update users set disabled_at = now() from program_keys k where users.id = program_id and k.id = ?',
      'invalid_token',
    ],
    [
      'tenant is isolated',
      'update tenants set isolated = true from program_keys k where tenants.id = tenant_id and k.id = ?',
      'invalid_token',
    ],
    [
      'tenant is suspended',
      `update tenants set status = 'suspended' from program_keys k where tenants.id = tenant_id and k.id = ?`,
      'tenant_inactive',
    ],
  ];
  for (const [name, change, code] of losses) {
    it(`a program whose ${name} is refused by every process, and stays refused`, async () => {
      const { client, keyId } = await addProgram();
      for (let i = 0; i < 4; i++) expect(await codes(client)).to.deep.equal([200, 200]);

      await controlSql(world, change, [keyId]);

      await eventually(async () => (await codes(client)).every(each => each === code), announcedMs);
      for (let i = 0; i < 4; i++) expect(await codes(client)).to.deep.equal([code, code]);

      await controlSql(world, `update tenants set status = 'active', isolated = false`);
      await eventually(
        async () => (await codes(await world.login(world.acme)))[0] === 200,
        announcedMs,
      );
    });
  }

  it('a program that is enabled again uses its key again, and has the rights that its role has now', async () => {
    const { client, id } = await addProgram();
    const country = { CountryCode: 'DE', CountryName: 'Germany' };
    expect((await client.post('/api/v1/Countries', country)).status).to.equal(403);

    await controlSql(world, 'update users set disabled_at = now() where id = ?', [id]);
    await eventually(async () => (await codes(client)).every(each => each === 'invalid_token'));
    await giveRole(id, 'Administrator');
    await controlSql(world, 'update users set disabled_at = null where id = ?', [id]);
    await eventually(async () => (await codes(client)).every(each => each === 200));
    expect((await client.post('/api/v1/Countries', country)).status).to.equal(201);

    await giveRole(id, 'Member');
    await eventually(
      async () => (await client.post('/api/v1/Countries', country)).body.code === 'forbidden',
      announcedMs,
    );
  });

  it('a key is refused from another network at each request, also after its first use, with the reason in the log alone', async () => {
    const { client, id } = await addProgram(['10.1.0.0/16', '2001:db8::/32']);
    for (let i = 0; i < 3; i++) {
      expect(await codes(client, from('10.1.2.3'))).to.deep.equal([200, 200]);
      expect(await codes(client, from('2001:db8::7'))).to.deep.equal([200, 200]);
      expect(await codes(client, from('10.2.0.1'))).to.deep.equal([
        'invalid_token',
        'invalid_token',
      ]);
    }

    const refused = await client.get(path, from('::1'));
    const unknown = await world.anonymous.withToken(createProgramKey().key).get(path);
    expect(await lineOf(refused)).to.include({ reason: 'network' });
    expect(await lineOf(unknown)).to.include({ reason: 'program_key' });
    const { traceId: _, ...body } = refused.body;
    const { traceId: __, ...unknownBody } = unknown.body;
    expect(body).to.deep.equal(unknownBody);

    await controlSql(world, `update users set networks = '{10.2.0.0/16}' where id = ?`, [id]);
    await eventually(
      async () =>
        (await codes(client, from('10.2.0.1'))).every(each => each === 200) &&
        (await codes(client, from('10.1.2.3'))).every(each => each === 'invalid_token'),
      announcedMs,
    );
  });

  it('from another network, the plain 401 tells neither that a key has ended, nor of its tenant', async () => {
    const here = from('10.1.2.3');
    const elsewhere = from('10.2.2.3');
    const used = await addProgram(['10.1.0.0/16']);
    const unused = await addProgram(['10.1.0.0/16']);
    expect(await codes(used.client, here)).to.deep.equal([200, 200]);

    world.clock.offsetSeconds = 2 * 24 * 3_600;
    for (const { client } of [used, unused]) {
      expect(await codes(client, elsewhere)).to.deep.equal(['invalid_token', 'invalid_token']);
      expect(await codes(client, here)).to.deep.equal(['token_expired', 'token_expired']);
    }
    world.clock.offsetSeconds = 0;

    await controlSql(world, `update tenants set status = 'suspended' where id = ?`, [
      world.acme.id,
    ]);
    await eventually(
      async () => (await codes(used.client, here)).every(each => each === 'tenant_inactive'),
      announcedMs,
    );
    for (const { client } of [used, unused]) {
      expect(await codes(client, elsewhere)).to.deep.equal(['invalid_token', 'invalid_token']);
    }

    await controlSql(world, `update tenants set status = 'active' where id = ?`, [world.acme.id]);
    await eventually(
      async () => (await codes(used.client, here)).every(each => each === 200),
      announcedMs,
    );
  });

  it('a stream of a program, by key or access token, ends when its networks no longer have the address of the client, or its key is revoked', async () => {
    for (const change of [
      (id: number) =>
        controlSql(world, `update users set networks = '{10.2.0.0/16}' where id = ?`, [id]),
      (id: number) =>
        controlSql(world, 'update program_keys set revoked_at = now() where program_id = ?', [id]),
    ]) {
      for (const hasAccessToken of [false, true]) {
        const { guid, id, key } = await addProgram();
        const token = hasAccessToken ? await accessTokenOf(guid, key) : key;
        const stream = await follow(world.anonymous.withToken(token), '', from('10.1.2.3'));
        expect(stream.status).to.equal(200);

        await change(id);

        let event = await stream.next();
        while (event?.event === undefined && event !== undefined) event = await stream.next();
        expect(event?.data, `access token: ${hasAccessToken}`).to.deep.include({
          Reason: 'access_changed',
        });
        stream.close();
      }
    }
  });

  it('an export of a program is cut when its networks no longer have the address of the client, or its key is revoked', async () => {
    await sql(
      world.acme,
      `set session_replication_role = replica;
       insert into activities (activity_code, comment, recorded_by, recorded_from)
       select 1, repeat(i || ' ', 500), 1, '' from generate_series(1, 5000) i`,
    );
    for (const change of [
      `update users set networks = '{10.2.0.0/16}' where id = ?`,
      'update program_keys set revoked_at = now() where program_id = ?',
    ]) {
      for (const hasAccessToken of [false, true]) {
        const { guid, id, key } = await addProgram(['10.1.0.0/16']);
        const token = hasAccessToken ? await accessTokenOf(guid, key) : key;
        const response = await fetch(
          `${world.url}/api/v1/Activity?filter[ActivityCode]=1&sort=Id`,
          {
            headers: { Authorization: `Bearer ${token}`, Accept: 'text/csv', ...from('10.1.2.3') },
          },
        );
        expect(response.status).to.equal(200);
        const reader = (response.body as ReadableStream<Uint8Array>).getReader();
        await reader.read();

        await controlSql(world, change, [id]);
        const client = world.anonymous.withToken(token);
        await eventually(
          async () => (await client.get(path, from('10.1.2.3'))).status === 401,
          announcedMs,
        );

        expect(await errorAtEnd(reader), `${change}, ${hasAccessToken}`).to.be.instanceOf(Error);
      }
    }
  });

  it('the hour of the last use is stored once, whatever the number of requests and processes', async () => {
    const { client, keyId } = await addProgram();
    const stored = async () => {
      const [row] = await controlSql<{ hour: string | null; version: string }>(
        world,
        'select last_used_at::text as hour, xmin::text as version from program_keys where id = ?',
        [keyId],
      );
      return row;
    };
    await inBoth(client);
    const first = await eventually(async () => {
      const row = await stored();
      return row?.hour ? row : undefined;
    }, 10_000);
    expect(first.hour).to.match(/:00:00/);

    for (let i = 0; i < 20; i++) await inBoth(client);
    const second = await addProgram();
    await second.client.get(path);
    await eventually(async () => {
      const [row] = await controlSql<{ used: boolean }>(
        world,
        'select last_used_at is not null as used from program_keys where id = ?',
        [second.keyId],
      );
      return row?.used;
    }, 10_000);

    expect(await stored()).to.deep.equal(first);
  });

  it('a key that is cut, changed or sent as a legacy token is refused, and no key is in the log', async () => {
    const { key } = await addProgram();
    const changed = key.replace(/.$/, last => (last === '0' ? '1' : '0'));

    for (const token of [key.slice(0, -1), changed, `${key}x`, key.toUpperCase()]) {
      const { status, body } = await world.anonymous.withToken(token).get(path);
      expect(status, token).to.equal(401);
      expect(body.code).to.equal('invalid_token');
    }
    const legacy = await world.anonymous.get(path, {
      'X-Api-Token': key,
      'X-Tenant': world.acme.guid,
    });
    expect(legacy.body.code).to.equal('unauthorized');
    expect((await world.anonymous.withToken(key).get(path)).status).to.equal(200);
    expect(world.logs.join('')).not.to.include(key);
  });

  it('a program has no session: it lists none, and a logout leaves its key as it is', async () => {
    const { client } = await addProgram();

    const list = await client.get('/api/v1/auth/sessions');
    const logout = await client.post('/api/v1/auth/logout');

    expect(list.body).to.deep.equal([]);
    expect(logout.body.code).to.equal('wrong_state');
    expect((await client.get(path)).status).to.equal(200);
  });
});
