import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import { importableResources } from '../../../src/sales/imports/importable-resources.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { readable, startMailServer } from '../../support/mail-server.ts';
import { mailsSettled } from '../../support/mails.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, useLogin } from '../../support/world.ts';
import { factorWorld } from '../auth/factors/factor-world.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import {
  addRole,
  expectProblem,
  invitation,
  rolesPath,
  usersPath,
} from '../people/people-world.ts';
import { withFormerBuild } from './provider-world.ts';

const path = '/api/v1/IdentityProviders';
let issuers = 0;
const newIssuer = (): string => `https://login-${issuers++}.example.com/realms/staff`;
const provider = (changes: object = {}) => ({
  Name: 'Acme staff',
  Issuer: newIssuer(),
  ClientIds: ['back-office'],
  ...changes,
});
const rule = (changes: object = {}) => ({
  Role: 'Member',
  Scope: 'All',
  EntityId: null,
  Domains: ['acme.example'],
  Claims: {},
  ...changes,
});

describe('the providers of a tenant', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url }));
  const admin = useLogin(world, 'acme');
  const other = useLogin(world, 'globex');

  beforeEach(async () => {
    await controlSql(world, 'delete from identity_providers');
    await controlSql(world, 'delete from account_notices');
  });

  const add = async (changes: object = {}, as: Client = admin) => {
    const response = await as.post(path, provider(changes));
    expect(response.status, JSON.stringify(response.body)).to.equal(201);
    return response;
  };
  /** The body of a PUT that changes nothing but the given fields. */
  const replaced = (body: Record<string, unknown>, changes: object = {}) => {
    const { Name, ClientIds, IsEnabled, SecondFactor, SessionHours, CreatesUsers } = body;
    return { Name, ClientIds, IsEnabled, SecondFactor, SessionHours, CreatesUsers, ...changes };
  };

  it('a provider is made, listed, changed and deleted, and another tenant has one of the same issuer', async () => {
    const Issuer = newIssuer();
    const created = await add({ Issuer });
    const { Id, Guid } = created.body;
    expect(created.headers.get('location')).to.match(new RegExp(`${path}/${Id}$`));
    expect(created.body).to.deep.include({
      Issuer,
      ClientIds: ['back-office'],
      IsEnabled: true,
      SecondFactor: 'never',
      SessionHours: 12,
      CreatesUsers: null,
      Identities: 0,
      ReachedAt: null,
      Failure: null,
    });

    const elsewhere = await add({ Issuer, ClientIds: ['another'] }, other);
    expect((await admin.get(`${path}/${elsewhere.body.Id}`)).status).to.equal(404);
    expect((await admin.get(path)).body.map((each: { Id: number }) => each.Id)).to.deep.equal([Id]);

    const CreatesUsers = rule({ Claims: { department: 'sales', level: 3, isStaff: true } });
    const changes = { Name: 'Staff', SecondFactor: 'mfa  hwk', SessionHours: 720, CreatesUsers };
    const changed = await admin.put(`${path}/${Id}`, replaced(created.body, changes));
    expect(changed.status, JSON.stringify(changed.body)).to.equal(200);
    expect(changed.body).to.deep.include({
      Guid,
      Issuer,
      Name: 'Staff',
      SecondFactor: 'mfa hwk',
      SessionHours: 720,
      CreatesUsers,
    });
    expect((await admin.get(`${path}/${Id}`)).body).to.deep.equal(changed.body);

    const always = await admin.put(
      `${path}/${Id}`,
      replaced(changed.body, { SecondFactor: 'always', CreatesUsers: null, IsEnabled: false }),
    );
    expect(always.body).to.include({
      SecondFactor: 'always',
      CreatesUsers: null,
      IsEnabled: false,
    });

    expect((await other.delete(`${path}/${Id}`)).status).to.equal(404);
    expect((await admin.delete(`${path}/${Id}`)).status).to.equal(204);
    expect((await admin.get(`${path}/${Id}`)).status).to.equal(404);
    expect((await other.get(path)).body).to.have.length(1);
  });

  it('a page of login gets the enabled providers of its tenant, with what a library needs', async () => {
    const { body } = await add({ ClientIds: ['one', 'two'] });
    await add({ Name: 'Off', IsEnabled: false });
    await add({}, other);

    const listed = await world.anonymous.get('/api/v1/auth/providers', {
      'X-Tenant': world.acme.slug,
    });

    expect(listed.status).to.equal(200);
    expect(listed.body).to.deep.equal([
      { name: 'Acme staff', issuer: body.Issuer, clientIds: ['one', 'two'] },
    ]);
  });

  it('whoever lacks a permission that any role of the tenant has adds, changes and deletes no provider', async () => {
    const { body } = await add();
    const held = permissions.filter(permission => permission !== 'pricing.override');
    const lesser = await world.loginAs(world.acme, { permissions: [...held] });

    expectProblem(await lesser.post(path, provider()), 403, 'forbidden');
    expectProblem(await lesser.put(`${path}/${body.Id}`, replaced(body)), 403, 'forbidden');
    const refused = await lesser.delete(`${path}/${body.Id}`);
    expectProblem(refused, 403, 'forbidden');
    expect(refused.body.detail).to.include('pricing.override');
    expect((await lesser.get(path)).status, 'they may read').to.equal(200);

    const reader = await world.loginAs(world.acme, { permissions: ['users.read'] });
    expect((await reader.get(path)).status).to.equal(403);
    const limited = await world.loginAs(world.acme, {
      permissions: [...permissions],
      scope: 'Self',
    });
    expectProblem(await limited.get(path), 403, 'forbidden');
    expectProblem(await limited.post(path, provider()), 403, 'forbidden');
  });

  it('a proof of the last five minutes is needed, which a program cannot give', async () => {
    const { body } = await add();
    const client = await world.loginAs(world.acme, { permissions: [...permissions] });
    await factorWorld(world).age(client, 6);

    expectProblem(await client.post(path, provider()), 403, 'verification_required');
    expectProblem(
      await client.put(`${path}/${body.Id}`, replaced(body)),
      403,
      'verification_required',
    );
    expectProblem(await client.delete(`${path}/${body.Id}`), 403, 'verification_required');

    const program = await admin.post('/api/v1/Programs', {
      Name: 'Night',
      Role: 'Administrator',
      Scope: 'All',
    });
    const { Key } = (await admin.post(`/api/v1/Programs/${program.body.Id}/keys`, {})).body;
    const granted = await fetch(`${world.url}/api/v1/auth/token`, {
      method: 'POST',
      body: new URLSearchParams({
        grant_type: 'client_credentials',
        client_id: program.body.Guid,
        client_secret: Key,
      }),
    });
    const { access_token: accessToken } = (await granted.json()) as { access_token: string };
    for (const token of [Key, accessToken]) {
      const byProgram = world.anonymous.withToken(token);
      const refused = [
        await byProgram.post(path, provider()),
        await byProgram.put(`${path}/${body.Id}`, replaced(body)),
        await byProgram.delete(`${path}/${body.Id}`),
        await byProgram.put('/api/v1/auth/sign-in-rules', {
          PasswordLogins: 'allowed',
          Except: [],
        }),
      ];
      for (const each of refused) expectProblem(each, 403, 'verification_required');
    }
  });

  it('the role of a rule is grown by nobody who lacks what it would get, nor do they grant one that has it', async () => {
    const role = await addRole(admin, ['full.read']);
    await add({ CreatesUsers: rule({ Role: role.Name }) });
    const held = permissions.filter(permission => permission !== 'pricing.override');
    const lesser = await world.loginAs(world.acme, { permissions: [...held] });
    const Permissions = ['full.read', 'pricing.override'];

    const refused = [
      await lesser.put(`${rolesPath}/${role.Id}`, { Name: role.Name, Permissions }),
      await lesser.post(rolesPath, { Name: 'Other', Permissions }),
      await lesser.post(usersPath, invitation({ Role: 'Administrator' })),
      await lesser.post('/api/v1/Programs', { Name: 'Day', Role: 'Administrator', Scope: 'All' }),
    ];

    for (const each of refused) expectProblem(each, 403, 'forbidden');
    const { body: unchanged } = await admin.get(`${rolesPath}/${role.Id}`);
    expect(unchanged.Permissions).to.deep.equal(['full.read']);
  });

  it('no import changes people, roles, programs or providers', () => {
    const names = [...importableResources.keys()].map(name => name.toLowerCase());

    expect(names.join()).not.to.match(/user|role|program|provider|identit/);
    expect(names).to.include('currency');
  });

  it('a provider that cannot be one gets an error of each field', async () => {
    const { body: known } = await add();
    const bad: [object, string][] = [
      [{ Issuer: 'http://login.example.com' }, 'Issuer'],
      [{ Issuer: 'https://login.example.com?a=b' }, 'Issuer'],
      [{ Issuer: 'https://127.0.0.1/realms/a' }, 'Issuer'],
      [{ Issuer: 'a text' }, 'Issuer'],
      [{ Issuer: 'https://login.example.com\\@internal.example/' }, 'Issuer'],
      [{ Issuer: 'https://login.exam\u200bple.com/' }, 'Issuer'],
      [{ ClientIds: [] }, 'ClientIds'],
      [{ ClientIds: Array.from({ length: 11 }, (_, i) => `${i}`) }, 'ClientIds'],
      [{ SecondFactor: 'mfa never' }, 'SecondFactor'],
      [{ SessionHours: 0 }, 'SessionHours'],
      [{ SessionHours: 721 }, 'SessionHours'],
      [{ CreatesUsers: rule({ Role: 'Nobody' }) }, 'CreatesUsers[Role]'],
      [{ CreatesUsers: rule({ Domains: [] }) }, 'CreatesUsers[Domains]'],
      [{ CreatesUsers: rule({ Domains: ['not a domain'] }) }, 'CreatesUsers[Domains][0]'],
      [{ CreatesUsers: rule({ Claims: { groups: ['a'] } }) }, 'CreatesUsers[Claims]'],
      [{ CreatesUsers: rule({ Claims: { hd: '\ud800' } }) }, 'CreatesUsers[Claims]'],
      [{ CreatesUsers: rule({ Claims: { '\ud800': 'a' } }) }, 'CreatesUsers[Claims]'],
      [{ CreatesUsers: rule({ EntityId: 4711 }) }, 'CreatesUsers[EntityId]'],
      [{ Issuer: 'https://accounts.google.com', CreatesUsers: rule() }, 'CreatesUsers[Claims]'],
    ];
    for (const [changes, field] of bad) {
      const refused = await admin.post(path, provider(changes));
      expectProblem(refused, 400, 'validation_failed');
      expect(Object.keys(refused.body.errors), JSON.stringify(changes)).to.deep.equal([field]);
    }

    const both = await admin.post(path, { ...provider({ Name: '' }), Issuer: 'http://a.example' });
    expect(Object.keys(both.body.errors)).to.have.members(['Name', 'Issuer']);
    const taken = await admin.post(path, provider({ Issuer: known.Issuer }));
    expectProblem(taken, 400, 'duplicate');
    expect(taken.body.errors).to.have.keys('Issuer');
    await admin.put(`${path}/${known.Id}`, { ...replaced(known), Issuer: newIssuer() });
    expect((await admin.get(`${path}/${known.Id}`)).body.Issuer).to.equal(known.Issuer);
  });

  it('a tenant has at most five providers', async () => {
    for (let i = 0; i < 5; i++) await add();

    expectProblem(await admin.post(path, provider()), 400, 'limit_reached');
    expect((await add({}, other)).status).to.equal(201);
  });

  it('a role that the rule of a provider gives is not deleted', async () => {
    const role = await addRole(admin, ['full.read']);
    const { body } = await add({ CreatesUsers: rule({ Role: role.Name }) });

    const refused = await admin.delete(`${rolesPath}/${role.Id}`);

    expectProblem(refused, 400, 'in_use');
    expect(refused.body.references).to.deep.equal([{ resource: 'IdentityProvider', count: 1 }]);
    expect((await admin.delete(`${path}/${body.Id}`)).status).to.equal(204);
    expect((await admin.delete(`${rolesPath}/${role.Id}`)).status).to.equal(204);
  });

  it('while a build runs that knows no providers, none is added or changed', async () => {
    const { body } = await add();

    const [added, changed] = await withFormerBuild(world, () =>
      Promise.all([admin.post(path, provider()), admin.put(`${path}/${body.Id}`, replaced(body))]),
    );

    for (const refused of [added, changed]) expectProblem(refused, 503, 'migration_pending');
    expect(added.headers.get('retry-after')).to.equal('10');
  });

  it('the audit log has each change of a provider, with its rule', async () => {
    const { body } = await add({ CreatesUsers: rule() });
    await admin.put(`${path}/${body.Id}`, replaced(body, { IsEnabled: false }));

    const { body: entries } = await admin.get(
      `/api/v1/AuditLog?resource=IdentityProvider&key=${body.Id}`,
    );

    expect(entries.map(({ Action }: { Action: string }) => Action)).to.deep.equal([
      'update',
      'create',
    ]);
    expect(entries[1].After).to.deep.include({
      Issuer: body.Issuer,
      CreatesDomains: ['acme.example'],
    });
    expect(entries[0].Before.IsEnabled).to.equal(true);
    expect(entries[0].After.IsEnabled).to.equal(false);
  });

  it('all administrators of the tenant get a mail on each change of a provider, and nobody else', async () => {
    const manager = await addSampleUser(world, world.acme, { role: 'Administrator' });
    const member = await addSampleUser(world, world.acme);
    const stranger = await addSampleUser(world, world.globex, { role: 'Administrator' });
    const textsTo = ({ email }: { email: string }): string[] =>
      mail
        .messagesTo(email)
        .map(({ content }) => readable(content))
        .filter(text => text.includes('/docs/guide/single-sign-on#a-mail-on-a-provider'))
        .filter(text => text.includes('Staff b of b Acme'));

    const { body } = await add({ Name: 'Staff <b>of</b> Acme' });
    await admin.put(`${path}/${body.Id}`, replaced(body, { IsEnabled: false }));
    await admin.delete(`${path}/${body.Id}`);

    await eventually(() => textsTo(manager).length === 3);
    await mailsSettled(world);
    const [added, disabled, removed] = textsTo(manager);
    expect(added).to.include('Staff b of b Acme was added.');
    expect(added).to.include(world.acme.admin.email);
    expect(disabled).to.include('was disabled');
    expect(removed).to.include('was removed');
    expect(textsTo(world.acme.admin)).to.have.length(3);
    expect([...textsTo(member), ...textsTo(stranger)]).to.deep.equal([]);
  });
});
