import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { controlSql, sql, useWorld } from '../../support/world.ts';

/** Needs the same permission, and no lock of the countries; an empty body is 400. */
const currencies = '/api/v1/Currency';

const losses = [
  [
    'the login ends',
    `update sessions set revoked_at = now() where user_id = ?`,
    401,
    'invalid_token',
  ],
  [
    'the user is disabled',
    `update users set disabled_at = now() where id = ?`,
    401,
    'invalid_token',
  ],
  [
    'the user loses the permission',
    `update roles set permissions = '{}' where id = (select role_id from users where id = ?)`,
    403,
    'forbidden',
  ],
  [
    'the tenant is suspended',
    `update tenants set status = 'suspended' where id = (select tenant_id from users where id = ?)`,
    403,
    'tenant_inactive',
  ],
] as const;

describe('imports whose caller loses the right to them', () => {
  const world = useWorld();
  afterEach(() => controlSql(world, `update tenants set status = 'active'`));

  for (const [what, lose, status, code] of losses) {
    it(`an import during which ${what} is ${status}, and changes nothing`, async () => {
      const client = await world.loginAs(world.acme, { permissions: ['settings.write'] });
      const [user] = await controlSql<{ id: number }>(
        world,
        'select max(id)::int as id from users',
      );
      const file = 'CountryCode,CountryName\nQQ,Name\n';

      const response = await withConnection(world.acme.adminUrl, async locked => {
        await locked.query('begin; lock table countries in exclusive mode');
        const sent = client.post('/api/v1/Imports?resource=Country', file, {
          'Content-Type': 'text/csv',
        });
        await eventually(async () => (await readLockWaiters(locked)).length > 0);

        await controlSql(world, lose, [user?.id]);
        await eventually(async () => (await client.post(currencies, {})).status === status);
        await locked.query('rollback');
        return sent;
      });

      expect(response.status).to.equal(status);
      expect(response.body.code).to.equal(code);
      expect(
        await sql(world.acme, `select from countries where country_code = 'QQ'`),
      ).to.deep.equal([]);
    });
  }
});
