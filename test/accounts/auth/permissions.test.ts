import { expect } from 'chai';
import { type Permission, permissions } from '../../../src/control/permissions.ts';
import { documentedRoutes } from '../../../src/service/routes.ts';
import type { Access, TenantRoute } from '../../../src/tenancy/define-route.ts';
import { examples } from '../../sales/resources/examples.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { useWorld } from '../../support/world.ts';

/**
 * The access that each group of routes requires, by the start of the path. This table, and the
 * examples of the resources, repeat the route definitions on purpose: a change of an access
 * rule must change them too.
 */
const expected: Record<string, { read: Access; write: Access }> = {
  ...Object.fromEntries(
    Object.values(examples).map(({ path, ...access }) => [path.replace('/api/v1/', ''), access]),
  ),
  Activity: { read: 'full.read', write: 'full.manage' },
  Imports: { read: 'user', write: 'user' },
  Changes: { read: 'user', write: 'user' },
  Webhooks: { read: 'settings.write', write: 'settings.write' },
  AuditLog: { read: 'full.read', write: 'full.read' },
  Users: { read: 'users.read', write: 'users.manage' },
  Roles: { read: 'users.manage', write: 'users.manage' },
  Programs: { read: 'users.read', write: 'users.manage' },
  IdentityProviders: { read: 'users.manage', write: 'users.manage' },
  Logins: { read: 'users.read', write: 'users.read' },
  Usage: { read: 'users.manage', write: 'users.manage' },
  'auth/login': { read: 'anonymous', write: 'anonymous' },
  'auth/refresh': { read: 'anonymous', write: 'anonymous' },
  'auth/register': { read: 'optional', write: 'optional' },
  'auth/confirm': { read: 'anonymous', write: 'anonymous' },
  'auth/reset-password': { read: 'anonymous', write: 'anonymous' },
  Data: { read: 'client', write: 'client' },
  'auth/me': { read: 'user', write: 'user' },
  'auth/providers': { read: 'anonymous', write: 'anonymous' },
  'auth/sign-in-rules': { read: 'users.manage', write: 'users.manage' },
  'auth/exchange': { read: 'anonymous', write: 'anonymous' },
  'auth/identities': { read: 'user', write: 'user' },
  'auth/verify': { read: 'user', write: 'user' },
  'auth/logout': { read: 'user', write: 'user' },
  'auth/logins': { read: 'user', write: 'user' },
  'auth/password': { read: 'user', write: 'user' },
  'auth/factors': { read: 'user', write: 'user' },
  'auth/sessions': { read: 'user', write: 'user' },
};

describe('permissions', () => {
  const world = useWorld();
  let routes: TenantRoute[];

  before(async () => {
    routes = documentedRoutes();
  });

  const routesWithUser = (): TenantRoute[] =>
    routes.filter(({ access }) => !['anonymous', 'optional', 'client'].includes(access));
  const routesWithPermission = () =>
    routes.filter((route): route is TenantRoute & { access: Permission } =>
      (permissions as readonly string[]).includes(route.access),
    );
  /** Calls a route, with an id for each parameter of its path that no record has. */
  const call = (
    client: Client,
    { method, path }: TenantRoute,
    headers = {},
  ): Promise<ApiResponse> =>
    client.send(
      method,
      path.replaceAll(/:\w+/g, '987654321'),
      method === 'POST' || method === 'PUT' || method === 'PATCH' ? {} : undefined,
      headers,
    );
  const name = ({ method, path }: TenantRoute): string => `${method} ${path}`;

  it('every route requires exactly the access that the table of this test names', () => {
    const actual = Object.fromEntries(routes.map(route => [name(route), route.access]));
    const required = Object.fromEntries(
      routes.map(route => {
        const [area = '', more] = route.path.replace(/^\/api\/(v1\/)?/, '').split('/');
        const rule = expected[area === 'auth' ? `${area}/${more}` : area];
        return [name(route), route.method === 'GET' ? rule?.read : rule?.write];
      }),
    );

    expect(actual).to.deep.equal(required);
    expect(routesWithPermission().length).to.be.at.least(5);
  });

  it('every route for users rejects a request without a valid token', async () => {
    for (const route of routesWithUser()) {
      const named = await call(world.anonymous, route, { 'X-Tenant': world.acme.guid });
      expect(named.status, name(route)).to.equal(401);
      expect(named.body.code, name(route)).to.equal('unauthorized');
      expect(named.headers.get('www-authenticate'), name(route)).to.equal('Bearer');

      const withoutTenant = await call(world.anonymous, route);
      expect(withoutTenant.status, name(route)).to.equal(403);
      expect(withoutTenant.body.code, name(route)).to.equal('tenant_required');

      const bad = await call(world.anonymous.withToken('x'), route, {
        'X-Tenant': world.acme.guid,
      });
      expect(bad.status, name(route)).to.equal(401);
      expect(bad.body.code, name(route)).to.equal('invalid_token');
    }
  });

  it('a 403 response names the missing permission, also for a user who has all other permissions', async () => {
    for (const access of new Set(routesWithPermission().map(route => route.access))) {
      const none = await world.loginAs(world.acme, { permissions: [] });
      const allOthers = await world.loginAs(world.acme, {
        permissions: permissions.filter(other => other !== access),
      });

      for (const route of routesWithPermission().filter(candidate => candidate.access === access)) {
        for (const client of [none, allOthers]) {
          const { status, body, headers } = await call(client, route);
          expect(status, name(route)).to.equal(403);
          expect(body.code, name(route)).to.equal('forbidden');
          expect(headers.get('www-authenticate')).to.equal(
            `Bearer error="insufficient_scope", scope="${access}"`,
          );
          expect(headers.get('cache-control')).to.equal('no-store');
        }
      }
    }
  });

  it('a user with only the permission that a route requires may call it', async () => {
    const clients = new Map<Access, Client>();
    const logoutLast = routesWithUser().toSorted(
      (a, b) => Number(a.path.endsWith('/logout')) - Number(b.path.endsWith('/logout')),
    );

    for (const route of logoutLast) {
      const { access } = route;
      const client =
        clients.get(access) ??
        (await world.loginAs(world.acme, { permissions: access === 'user' ? [] : [access] }));
      clients.set(access, client);

      const isStream = route.contentType?.startsWith('text/event-stream'); // it would not end
      const { status, body } = await call(
        client,
        isStream ? { ...route, path: `${route.path}?after=no` } : route,
      );
      expect([401, 403], `${name(route)} returned ${status} ${body.code}`).to.not.include(status);
      expect(status, `${name(route)} returned ${status} ${body.code}`).to.be.below(500);
    }
  });

  it('no permission implies another: full.manage allows no reads, and full.read allows no writes', async () => {
    const manager = await world.loginAs(world.acme, { permissions: ['full.manage'] });
    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });
    expect((await manager.get('/api/v1/EntityStatus')).status).to.equal(403);
    expect((await manager.post('/api/v1/EntityStatus', { Title: 'Written' })).status).to.equal(201);
    expect((await reader.get('/api/v1/EntityStatus')).status).to.equal(200);
    expect((await reader.post('/api/v1/EntityStatus', { Title: 'Refused' })).status).to.equal(403);
  });

  it('permissions are checked before the body is read', async () => {
    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });
    for (const body of ['{', '[]', JSON.stringify({ Title: 7 }), 'x'.repeat(100_000)]) {
      expect((await reader.post('/api/v1/EntityStatus', body)).status).to.equal(403);
    }
  });
});
