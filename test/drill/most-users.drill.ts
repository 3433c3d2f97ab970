import { expect } from 'chai';
import {
  expectProblem,
  insertWithoutTriggers,
  invitation,
  usersPath,
} from '../accounts/people/people-world.ts';
import { controlSql, useLogin, useWorld } from '../support/world.ts';

describe('drill: users of a tenant up to their limit', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  it('a tenant has at most 100,000 users: a further invitation is refused, and adds nothing', async () => {
    for (let first = 1; first < 100_000; first += 5_000) {
      await insertWithoutTriggers(
        world,
        'users',
        `insert into users (tenant_id, email, password_hash, first_name, last_name, role_id)
         select tenant_id, 'many-' || n || '@globex.test', 'none', 'M', 'N', id
           from roles cross join generate_series(${first}, least(${first + 4_999}, 99999)) n
          where tenant_id = ${world.globex.id} and name = 'Member'`,
      );
    }

    const globex = await world.login(world.globex);
    const count = `select count(*)::int as users from users where tenant_id = ${world.globex.id}`;
    expect(await controlSql(world, count)).to.deep.equal([{ users: 100_000 }]);

    expectProblem(await globex.post(usersPath, invitation()), 400, 'limit_reached');
    expect(await controlSql(world, count)).to.deep.equal([{ users: 100_000 }]);
    expect((await admin.post(usersPath, invitation())).status, 'another tenant').to.equal(201);
  });
});
