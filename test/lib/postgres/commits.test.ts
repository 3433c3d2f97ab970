import { expect } from 'chai';
import { transactControl } from '../../../src/control/database.ts';
import { RolledBackError } from '../../../src/lib/postgres/commit-outcome.ts';
import { operatorPool, withConnection } from '../../../src/lib/postgres/connection.ts';
import { inTransaction } from '../../../src/lib/postgres/in-transaction.ts';
import { sql, type TestTenant, useWorld } from '../../support/world.ts';

/** A statement whose error code catches: its transaction cannot commit any more. */
const failing = 'select 1 / 0';
const insertUnit = `
  select set_config('app.actor', '{}', true);
  insert into units_of_measure (code, name) values ('LOST', 'Lost')`;

describe('commits', () => {
  const world = useWorld();

  const unitsOf = async (tenant: TestTenant) => {
    const [found] = await sql<{ units: number }>(
      tenant,
      `select count(*)::int as units from units_of_measure where code = 'LOST'`,
    );
    return found?.units;
  };

  const ways: Record<string, () => Promise<unknown>> = {
    'a connection of a command': () =>
      withConnection(world.acme.adminUrl, client =>
        inTransaction(client, async () => {
          await client.query(insertUnit);
          await client.query(failing).catch(() => {});
        }),
      ),
    'a connection of a pool': async () => {
      const pool = operatorPool(world.acme.adminUrl, 1);
      const client = await pool.connect();
      try {
        await inTransaction(client, async () => {
          await client.query(insertUnit);
          await client.query(failing).catch(() => {});
        });
      } finally {
        client.release();
        await pool.end();
      }
    },
    'a transaction of the control database': async () =>
      transactControl(
        await world.installation.control(),
        async query => {
          await query('failing', failing, []).catch(() => {});
        },
        { isRepeatable: false },
      ),
    'a transaction of MikroORM': () =>
      world.control.em.fork().transactional(async em => {
        await em.execute(failing).catch(() => {});
      }),
  };

  for (const [way, transact] of Object.entries(ways)) {
    it(`a transaction whose failed statement was caught is reported as rolled back: ${way}`, async () => {
      const outcome = await transact().catch(error => error);

      expect(outcome).to.be.instanceOf(RolledBackError);
      expect(await unitsOf(world.acme)).to.equal(0);
      expect(await unitsOf(world.globex)).to.equal(0);
    });
  }
});
