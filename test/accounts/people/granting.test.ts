import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import { documentedRoutes } from '../../../src/service/routes.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { mailsSettled } from '../../support/mails.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, useLogin } from '../../support/world.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import {
  addRole,
  changed,
  invitation,
  newAddress,
  ownRecord,
  rolesPath,
  usersPath,
} from './people-world.ts';

const registerPath = '/api/v1/auth/register';
const programsPath = '/api/v1/Programs';
const providersPath = '/api/v1/IdentityProviders';
const rulesPath = '/api/v1/auth/sign-in-rules';
const sessionsPath = '/api/v1/auth/sessions';

/** A change of people that grants something, or is about somebody who has it. */
interface Door {
  /** The route, as `documentedRoutes` names it. */
  readonly route: string;
  /** Undefined = 403. */
  readonly selfStatus?: number;
  /** @param own the user record of the caller */
  call(as: Client, own: ApiResponse): Promise<ApiResponse>;
}

describe('what administrators grant', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url, RATE_LIMIT_ACCOUNT: '1000/1m' }));
  const admin = useLogin(world, 'acme');

  const registration = (email = newAddress()) => {
    return { email, password: 'correct horse battery', firstName: 'Nora', lastName: 'Newman' };
  };
  const register = (as: Client, body: object, tenant = world.acme) =>
    as.post(registerPath, body, { 'X-Tenant': tenant.guid });
  /** The people of both tenants, as they are stored, and how each could become somebody. */
  const snapshot = async () => {
    await mailsSettled(world);

    return Promise.all(
      ['users', 'roles', 'program_keys', 'mail_deliveries', 'sessions', 'identity_providers'].map(
        table =>
          controlSql(
            world,
            `select to_jsonb(t) as row from ${table} t where tenant_id = any (?::bigint[]) order by 1`,
            [`{${world.acme.id},${world.globex.id}}`],
          ),
      ),
    );
  };

  /**
   * Every way to change a user or role, on people and roles with permissions beyond
   * `users.manage`.
   */
  async function openDoors(): Promise<Door[]> {
    const role = await addRole(admin, ['orders.read']);
    const unused = await addRole(admin, ['orders.read']);

    const sample = async () =>
      admin.get(`${usersPath}/${(await addSampleUser(world, world.acme)).id}`);
    const [member, disabled] = [await sample(), await sample()];
    await admin.post(`${usersPath}/${disabled.body.Id}/disable`);

    const invited = invitation();
    const pending = await admin.post(usersPath, invited);
    const victim = await addSampleUser(world, world.acme);
    const session = (await (await world.login(world.acme, victim)).get(sessionsPath)).body[0].id;
    const body = { Name: 'Till', Role: 'Member', Scope: 'All', Networks: [] };
    const program = `${programsPath}/${(await admin.post(programsPath, body)).body.Id}`;
    const key = (await admin.post(`${program}/keys`, {})).body;
    const provider = {
      Name: 'Staff',
      ClientIds: ['one'],
      IsEnabled: true,
      SecondFactor: 'always',
      SessionHours: 12,
      CreatesUsers: null,
    };
    const Issuer = 'https://login.example.com';
    const { Id: providerId } = (await admin.post(providersPath, { ...provider, Issuer })).body;
    const path = (user: ApiResponse) => `${usersPath}/${user.body.Id}`;

    return [
      { route: `POST ${registerPath}`, call: as => register(as, registration()) },
      { route: `POST ${registerPath}`, call: as => register(as, registration(invited.Email)) },
      { route: `POST ${usersPath}`, call: as => as.post(usersPath, invitation()) },
      {
        route: `POST ${usersPath}`,
        call: as => as.post(usersPath, { ...invited, FirstName: 'Other' }),
      },
      {
        route: `PUT ${usersPath}/:id`,
        call: as => as.put(path(member), changed(member, { FirstName: 'Other' })),
      },
      {
        route: `PUT ${usersPath}/:id`,
        call: (as, own) => as.put(path(own), changed(own, { Role: 'Administrator', Scope: 'All' })),
      },
      {
        route: `PUT ${usersPath}/:id`,
        call: as => as.put(path(pending), changed(pending, { Email: newAddress() })),
      },
      { route: `DELETE ${usersPath}/:id`, call: as => as.delete(path(pending)) },
      { route: `POST ${usersPath}/:id/disable`, call: as => as.post(`${path(member)}/disable`) },
      { route: `POST ${usersPath}/:id/enable`, call: as => as.post(`${path(disabled)}/enable`) },
      {
        route: `DELETE ${usersPath}/:id/sessions`,
        call: as => as.delete(`${usersPath}/${victim.id}/sessions`),
      },
      {
        route: `POST ${usersPath}/:id/factors/reset`,
        call: as => as.post(`${path(member)}/factors/reset`),
      },
      {
        route: `PUT ${rolesPath}/:id/second-factor`,
        call: as => as.put(`${rolesPath}/${role.Id}/second-factor`, { Required: true }),
      },
      // The response does not disclose to those who manage nobody that there is such a session.
      {
        route: `DELETE ${sessionsPath}/:id`,
        selfStatus: 204,
        call: as => as.delete(`${sessionsPath}/${session}`),
      },
      {
        route: `POST ${rolesPath}`,
        call: as => as.post(rolesPath, { Name: 'New', Permissions: ['orders.read'] }),
      },
      {
        route: `PUT ${rolesPath}/:id`,
        call: as => as.put(`${rolesPath}/${role.Id}`, { Name: role.Name, Permissions: [] }),
      },
      { route: `DELETE ${rolesPath}/:id`, call: as => as.delete(`${rolesPath}/${unused.Id}`) },
      { route: `POST ${programsPath}`, call: as => as.post(programsPath, body) },
      { route: `PUT ${programsPath}/:id`, call: as => as.put(program, body) },
      { route: `POST ${programsPath}/:id/disable`, call: as => as.post(`${program}/disable`) },
      { route: `POST ${programsPath}/:id/enable`, call: as => as.post(`${program}/enable`) },
      { route: `POST ${programsPath}/:id/keys`, call: as => as.post(`${program}/keys`, {}) },
      {
        route: `DELETE ${programsPath}/:id/keys/:keyId`,
        call: as => as.delete(`${program}/keys/${key.Id}`),
      },
      {
        route: `POST ${programsPath}/keys/revoke`,
        call: as => as.post(`${programsPath}/keys/revoke`, { MadeBy: key.MadeBy }),
      },
      {
        route: `POST ${providersPath}`,
        call: as => as.post(providersPath, { ...provider, Issuer: `${Issuer}/other` }),
      },
      {
        route: `PUT ${providersPath}/:id`,
        call: as => as.put(`${providersPath}/${providerId}`, provider),
      },
      {
        route: `DELETE ${providersPath}/:id`,
        call: as => as.delete(`${providersPath}/${providerId}`),
      },
      {
        route: `PUT ${rulesPath}`,
        call: as => as.put(rulesPath, { PasswordLogins: 'allowed', Except: [] }),
      },
    ];
  }

  it('nobody grants, in any way, a permission or scope that they lack, or manages a person who has it', async () => {
    const doors = await openDoors();
    const changing = documentedRoutes()
      .filter(
        ({ method, access }) =>
          method !== 'GET' && (access === 'users.manage' || access === 'optional'),
      )
      .map(({ method, path }) => `${method} ${path}`);
    expect(doors.map(({ route }) => route)).to.include.members(changing);

    const lacking = await world.loginAs(world.acme, {
      permissions: ['users.manage', 'users.read'],
    });
    const limited = await world.loginAs(world.acme, {
      permissions: [...permissions],
      scope: 'Self',
    });
    const callers = [
      { as: lacking, own: await ownRecord(world, lacking), isSelf: false },
      { as: limited, own: await ownRecord(world, limited), isSelf: true },
    ];

    for (const features of ['{}', '{selfRegistration}']) {
      await controlSql(world, 'update tenants set features = ? where id = ?', [
        features,
        world.acme.id,
      ]);
      const before = await snapshot();

      for (const { route, call, selfStatus } of doors) {
        for (const { as, own, isSelf } of callers) {
          const { status, body } = await call(as, own);
          const expected = isSelf && selfStatus ? [selfStatus, undefined] : [403, 'forbidden'];
          expect([status, body?.code], `${route}: ${JSON.stringify(body)}`).to.deep.equal(expected);
        }
      }

      expect(await snapshot()).to.deep.equal(before);
    }

    await controlSql(world, `update tenants set features = '{}' where id = ?`, [world.acme.id]);
  });

  it('an administrator who registers a person is the actor of the audit entry, and nobody else is', async () => {
    const { body: me } = await admin.get('/api/v1/auth/me');
    await controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [
      world.acme.id,
    ]);

    const email = newAddress();
    const requested = await register(admin, registration(email));
    expect(requested.status).to.equal(202);

    const token = await mail.waitForToken(email);
    await register(world.anonymous, registration(email));
    await mail.waitForToken(email, 2);

    const open = newAddress();
    await register(world.anonymous, registration(open));
    const openToken = await mail.waitForToken(open);

    await controlSql(world, `update tenants set features = '{}' where id = ?`, [world.acme.id]);

    for (const [address, used] of [
      [email, token],
      [open, openToken],
    ] as const) {
      const confirmed = await world.anonymous.post(
        '/api/v1/auth/confirm',
        { token: used },
        { 'X-Tenant': world.acme.guid },
      );
      expect(confirmed.status).to.equal(204);

      const [user] = (await admin.get(`${usersPath}?filter[Email]=${address}`)).body;
      expect(user).to.include({ Role: 'Member', Scope: 'Self' });

      const entries = (await admin.get(`/api/v1/AuditLog?resource=User&key=${user.Id}`)).body;
      expect(entries).to.have.length(1);

      const traceId = requested.headers.get('x-request-id');
      if (address === email) {
        expect(entries[0]).to.include({
          Action: 'create',
          UserGuid: me.userGuid,
          TraceId: traceId,
        });
      } else {
        expect(entries[0]).to.include({ Action: 'create', UserGuid: null, TraceId: null });
      }
    }
  });
});
