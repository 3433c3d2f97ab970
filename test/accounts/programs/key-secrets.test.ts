import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { startReceiver } from '../../sales/webhooks/receiver.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { use, useFolder } from '../../support/use.ts';
import { createWorld, sql, useLogin } from '../../support/world.ts';

const path = '/api/v1/Programs';

describe('where a key of a program is not', () => {
  const receiver = use(startReceiver);
  const world = use(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));
  const admin = useLogin(world, 'acme');
  const folder = useFolder();

  /** Adds a program with every permission, and a key of it. */
  async function addProgram() {
    const body = { Name: 'Till', Role: 'Administrator', Scope: 'All' };
    const { Id, Guid } = (await admin.post(path, body)).body;
    const key: string = (await admin.post(`${path}/${Id}/keys`, {})).body.Key;
    const hash = createHash('sha256').update(key).digest();

    return {
      id: Id,
      guid: Guid,
      key,
      client: world.anonymous.withToken(key),
      secrets: [key, hash.toString('hex'), hash.toString('base64')],
    };
  }
  const expectNone = (text: string, secrets: readonly string[], where: string): void => {
    for (const secret of secrets) {
      expect(text.includes(secret), `${where} has ${secret}`).to.equal(false);
    }
  };

  it('no error and no line of the log has a key, wherever a client has sent it', async () => {
    const { client, guid, key, secrets } = await addProgram();
    const tenant = { 'X-Tenant': world.acme.guid };
    const form = { 'Content-Type': 'application/x-www-form-urlencoded' };
    const { anonymous } = world;

    for (const response of [
      await anonymous.get(`/api/v1/auth/me?access_token=${key}`, tenant),
      await anonymous.get(`/api/v1/Countries/code/${key}?key=${key}`, { 'X-Api-Token': key }),
      await client.get(`/api/v1/Countries/code/${key}`),
      await client.get(`/api/v1/Users/${key}`),
      await client.get(`/api/v1/Countries?filter[Nothing]=${key}&${key}=1`),
      await client.get(`${path}/1/keys/${key}`),
      await client.post(path, { Name: 'X', Role: key, Scope: key, Networks: [key] }),
      await client.post(path, key),
      await client.get('/api/v1/auth/me', { 'If-None-Match': key, Authorization: `Basic ${key}` }),
      await client.post('/api/v1/Programs', {}, { 'Idempotency-Key': `${key} ü` }),
      await anonymous.post('/api/v1/auth/login', { email: key, password: key }, tenant),
      await anonymous.post('/api/v1/auth/refresh', { refreshToken: key }, tenant),
      await anonymous.withToken(`${key}.${key}.${key}`).get('/api/v1/auth/me'),
      await anonymous.get('/api/Data/GenerateToken', {
        Authorization: `Basic ${Buffer.from(`${guid}:${key}`).toString('base64')}`,
      }),
      await anonymous.get(`/${key}`),
    ]) {
      expect(response.status, JSON.stringify(response.body)).to.be.within(400, 499);
      expectNone(JSON.stringify(response.body), secrets, 'an error');
      expectNone(JSON.stringify([...response.headers]), secrets, 'a header of an error');
    }
    for (const [query, body] of [
      [`?client_secret=${key}`, `grant_type=${key}&client_id=${key}&client_secret=${key}`],
      ['', `grant_type=client_credentials&client_id=${key}&client_secret=${guid}`],
      ['', `${key}`],
    ]) {
      const response = await fetch(`${world.url}/api/v1/auth/token${query}`, {
        method: 'POST',
        headers: form,
        body: body ?? '',
      });
      expect(response.status).to.be.within(400, 499);
      expectNone(await response.text(), secrets, 'an error of OAuth');
    }
    expect((await client.get('/api/v1/auth/me')).status).to.equal(200);

    await eventually(() => world.logs.some(line => line.includes('/api/v1/auth/token')));
    expectNone(world.logs.join(''), secrets, 'the log');
  });

  it('no audit entry, webhook or export of the tenant has a key or its hash, and the entries name the program', async () => {
    const { client, guid, id, secrets } = await addProgram();
    const hook = await client.post('/api/v1/Webhooks', {
      Url: receiver.url('/programs'),
      Resources: ['Country'],
      Payload: 'record',
    });
    expect(hook.status, JSON.stringify(hook.body)).to.equal(201);

    const country = { CountryCode: 'NO', CountryName: 'Norway' };
    expect((await client.post('/api/v1/Countries', country)).status).to.equal(201);
    const role = { Name: 'Clerk of a program', Permissions: ['full.read'] };
    expect((await client.post('/api/v1/Roles', role)).status).to.equal(201);
    await eventually(() => receiver.at('/programs').length > 0);

    const entries = [
      ...(await admin.get('/api/v1/AuditLog?resource=Country&key=NO')).body,
      ...(await admin.get('/api/v1/AuditLog?resource=Role')).body.slice(0, 1),
    ];
    expect(entries).to.have.length(2);
    for (const entry of entries) {
      expect(entry).to.include({ UserId: id, UserGuid: guid });
    }
    const logs = await Promise.all(
      ['', '?resource=Program', '?resource=ProgramKey', '?resource=User'].map(
        async query => (await admin.get(`/api/v1/AuditLog${query}`)).body,
      ),
    );
    expectNone(JSON.stringify(logs), secrets, 'the audit log');
    expectNone(JSON.stringify(receiver.messages), secrets, 'a message of a webhook');

    const file = join(folder, 'acme.tar');
    const exported = await runCommand(
      'scripts/tenant.ts',
      ['export', 'acme', '--to', file],
      world.environment,
    );
    expect(exported.code, exported.stderr).to.equal(0);
    const text = (await readFile(file)).toString('latin1');
    expect(text).to.include(guid).and.to.include('Norway');
    expectNone(text, secrets, 'the export');

    const tables = await sql<{ name: string }>(
      world.acme,
      `select table_name as name from information_schema.tables
        where table_schema = 'public' and table_type = 'BASE TABLE'`,
    );
    for (const { name } of tables) {
      const rows = await sql(world.acme, `select to_jsonb(t)::text as row from ${name} t`);
      expectNone(JSON.stringify(rows), secrets, `the table ${name} of the tenant`);
    }
  });
});
