import { expect } from 'chai';
import { withConnection } from '../../src/postgres/connection.ts';
import { eventually } from '../support/eventually.ts';
import { controlSql, useLogin, useWorld } from '../support/world.ts';
import { expectProblem, insertWithoutTriggers, invitation, rolesPath, usersPath } from './people-world.ts';

describe('load of the control database', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  it('slow lists of one tenant leave the connections of the control database to the logins of others', async () => {
    const requests = 2 * world.config.controlConnections;
    await withConnection(world.config.databaseUrl ?? '', async client => {
      await client.query('begin; lock table audit_log in access exclusive mode');
      const lists = Array.from({ length: requests }, () => admin.get('/api/v1/AuditLog?resource=User&sort=Id'));
      const waiting = async (): Promise<number> => {
        const { rowCount } = await client.query(
          `select from pg_locks where not granted and relation = 'audit_log'::regclass`,
        );
        return rowCount ?? 0;
      };
      await eventually(async () => (await waiting()) > 0);
      await world.login(world.globex);
      expect(await waiting()).to.equal(1);
      await client.query('rollback');
      for (const { status } of await Promise.all(lists)) expect(status).to.equal(200);
    });
  });

  it('changes of one tenant at the same time wait for each other, and all are made', async () => {
    const names = Array.from({ length: 50 }, (_, i) => `Shift ${i}`);
    const responses = await Promise.all(names.map(Name => admin.post(rolesPath, { Name, Permissions: [] })));
    expect([...new Set(responses.map(({ status }) => status))]).to.deep.equal([201]);
  });

  it('a tenant has at most 100,000 users: a further invitation is refused, and adds nothing', async () => {
    for (let first = 1; first < 100_000; first += 5_000)
      await insertWithoutTriggers(
        world,
        'users',
        `insert into users (tenant_id, email, password_hash, first_name, last_name, role_id)
         select tenant_id, 'many-' || n || '@globex.test', 'none', 'M', 'N', id
           from roles cross join generate_series(${first}, least(${first + 4_999}, 99999)) n
          where tenant_id = ${world.globex.id} and name = 'Member'`,
      );
    const globex = await world.login(world.globex);
    const count = `select count(*)::int as users from users where tenant_id = ${world.globex.id}`;
    expect(await controlSql(world, count)).to.deep.equal([{ users: 100_000 }]);
    expectProblem(await globex.post(usersPath, invitation()), 400, 'limit_reached');
    expect(await controlSql(world, count)).to.deep.equal([{ users: 100_000 }]);
    expect((await admin.post(usersPath, invitation())).status, 'another tenant').to.equal(201);
  });
});
