import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { eventually } from '../../support/eventually.ts';
import { sql, useLogin, useWorld } from '../../support/world.ts';

const tenantConnections = 3;
/**
 * The activity of each of these entities waits for the advisory lock with the number of the
 * entity.
 */
const [largeEntity, heldEntity, otherEntity] = [71, 72, 73];
/** Has 20 activities of 100 KB each. */
const wideEntity = 74;
const smallEntity = 75;

describe('small reads of a tenant', () => {
  const world = useWorld({ TENANT_CONNECTIONS: String(tenantConnections) });
  const admin = useLogin(world, 'acme');

  before(async () => {
    await sql(
      world.acme,
      `insert into activities (activity_code, user_id, entity_id, comment, recorded_by, recorded_from)
       select entity, 1, entity, repeat('x', bytes), 1, '127.0.0.1'
         from (values (${largeEntity}, 10, 1), (${largeEntity}, 4000, 500), (${heldEntity}, 10, 1), (${otherEntity}, 10, 1),
                      (${wideEntity}, 100000, 20), (${smallEntity}, 10, 1)) row (entity, bytes, count),
              generate_series(1, count)
        order by bytes, entity;
       create function wait_for(lock int) returns boolean language plpgsql as
         'begin perform pg_advisory_xact_lock_shared(lock); return true; end';
       create policy waits on activities
         using (case when activity_code <= ${otherEntity} and comment = repeat('x', 10) then wait_for(activity_code) else true end);
       alter table activities enable row level security`,
    );
    // A sort would wait for the lock before the first row is sent.
    await sql(world.acme, `alter database "${world.acme.database}" set enable_sort to off`);
  });

  const list = (query: string) => admin.get(`/api/v1/Activity?${query}`);
  const usage = () => world.service.databases.budgets.usage;

  it('small reads do not wait for a large one of their tenant, which waits for a lock', async () => {
    const other = await world.login(world.globex);

    await withConnection(world.acme.adminUrl, async session => {
      await session.query(
        `select pg_advisory_lock(n) from generate_series(${largeEntity}, ${otherEntity}) n`,
      );
      let isHeld = true;
      const large = list(`limit=1000&entityId=${largeEntity}`).finally(() => (isHeld = false));
      await eventually(() => usage().inUse === 1);

      const held = [list(`userId=1&entityId=${heldEntity}`), list(`entityId=${otherEntity}`)];
      await eventually(() => usage().inUse === tenantConnections);
      const wide = list(`limit=20&entityId=${wideEntity}`);
      await eventually(() => usage().waiting === 1);

      const small = Array.from({ length: 3 }, () => list(`limit=20&entityId=${smallEntity}`));
      expect((await other.get('/api/v1/Activity')).status).to.equal(200);

      await session.query(
        `select pg_advisory_unlock(n) from generate_series(${heldEntity}, ${otherEntity}) n`,
      );
      for (const { body } of await Promise.all(small)) expect(body).to.have.length(1);
      expect(isHeld).to.equal(true);

      await session.query(`select pg_advisory_unlock(${largeEntity})`);
      for (const { status } of await Promise.all([large, wide, ...held])) {
        expect(status).to.equal(200);
      }
    });
  });
});
