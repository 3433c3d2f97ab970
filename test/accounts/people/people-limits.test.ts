import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import type { Client } from '../../support/client.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useLogin, useWorld } from '../../support/world.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import {
  addRole,
  expectProblem,
  insertWithoutTriggers,
  invitation,
  rolesPath,
  usersPath,
} from './people-world.ts';

describe('what people add to the control database', () => {
  const world = useWorld({ RATE_LIMIT_PEOPLE: '5/24h' });
  const admin = useLogin(world, 'acme');

  const administrator = async (): Promise<Client> =>
    world.login(world.acme, await addSampleUser(world, world.acme, { role: 'Administrator' }));
  const rowsOf = async (tenant: { id: number }) => {
    const [row] = await controlSql<object>(
      world,
      `select (select count(*)::int from audit_log where tenant_id = ?) as entries,
              (select count(*)::int from users where tenant_id = ?) as users,
              (select count(*)::int from roles where tenant_id = ?) as roles,
              (select count(*)::int from idempotency_keys k join users u on u.id = user_id where tenant_id = ?) as keys`,
      [tenant.id, tenant.id, tenant.id, tenant.id],
    );
    return row;
  };

  it('a change above the limit of one administrator, or above four times that limit in one tenant, is refused and adds nothing', async () => {
    const key = { 'Idempotency-Key': randomUUID() };
    const first = await admin.post(rolesPath, { Name: 'First', Permissions: [] }, key);
    const admins = [admin];
    for (let i = 0; i < 4; i++) admins.push(await administrator());

    for (const [index, each] of admins.slice(0, 4).entries()) {
      for (let i = index === 0 ? 1 : 0; i < 5; i++) {
        expect(
          (await each.post(rolesPath, { Name: `Role ${index} ${i}`, Permissions: [] })).status,
        ).to.equal(201);
      }
    }

    const before = await rowsOf(world.acme);

    for (const each of admins) {
      const limited = await each.post(usersPath, invitation(), { 'Idempotency-Key': randomUUID() });
      expectProblem(limited, 429, 'rate_limited');
      expect(Number(limited.headers.get('retry-after'))).to.be.within(1, 86_400);
    }

    expect(await rowsOf(world.acme)).to.deep.equal(before);

    const repeated = await admin.post(rolesPath, { Name: 'First', Permissions: [] }, key);
    expect(repeated.status, 'a repeated request').to.equal(201);
    expect(repeated.body, 'a repeated request').to.deep.equal(first.body);

    const globex = await world.login(world.globex);
    expect(
      (await globex.post(rolesPath, { Name: 'Other tenant', Permissions: [] })).status,
    ).to.equal(201);

    world.clock.monotonicOffsetMs += 86_401_000;
    const later = await world.login(world.acme);
    expect((await later.post(rolesPath, { Name: 'A day later', Permissions: [] })).status).to.equal(
      201,
    );

    world.clock.monotonicOffsetMs = 0;
  });

  it('an idempotency key of the control database is removed a day later, when another one is stored', async () => {
    const globex = await world.login(world.globex);
    const store = () =>
      globex.post(
        rolesPath,
        { Name: `Role ${randomUUID()}`, Permissions: [] },
        { 'Idempotency-Key': randomUUID() },
      );

    await store();
    const days = `update idempotency_keys set created_at = now() - interval '25 hours'`;
    await controlSql(world, days);
    await store();

    const keys = await controlSql(
      world,
      `select from idempotency_keys where created_at < now() - interval '24 hours'`,
    );
    expect(keys).to.have.length(0);
  });

  it('the audit log of users and roles keeps ten years, or as long as an operator says, and removes older entries by itself', async () => {
    const run = (...args: string[]) =>
      runCommand('scripts/tenant.ts', ['retention', ...args, '--json'], world.environment);
    /**
     * Entries of both tenants, which come before all others, as the oldest of a log that has
     * grown.
     */
    const addOld = (age: string, firstId: number) =>
      insertWithoutTriggers(
        world,
        'audit_log',
        `insert into audit_log (id, tenant_id, action, resource, record_key, created_at, database_user) overriding system value
         select ${firstId} + row_number() over (), id, 'update', 'User', '4711', now() - interval '${age}', 'x'
           from tenants cross join generate_series(1, 3)`,
      );
    const left = async () =>
      (await controlSql(world, `select from audit_log where record_key = '4711'`)).length;

    const globex = await world.login(world.globex);
    await addOld('11 years', -2_000);
    await addOld('9 years', -1_000);
    expect(await left()).to.equal(12);

    await addRole(globex, []);
    expect(await left(), 'ten years by default').to.equal(6);

    const refused = await run('acme', '--people', '8y');
    expect(refused.code).to.equal(2);
    expect(refused.stderr).to.include('--default');

    const set = await run('--default', '--people', '8y');
    expect(JSON.parse(set.stdout)).to.include({
      activity: 'forever',
      audit: 'forever',
      people: '8y',
    });

    await addRole(globex, []);
    expect(await left(), 'eight years').to.equal(0);

    for (const text of ['delete from audit_log', `update audit_log set user_id = 1`]) {
      await controlSql(world, text).then(
        () => expect.fail(`${text} succeeded`),
        error => expect(String(error)).to.match(/append-only/),
      );
    }
  });
});
