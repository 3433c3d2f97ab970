import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { TableStatements } from '../../../src/lib/postgres/table-statements.ts';
import { Activity, activityView } from '../../../src/sales/activity/activity.ts';
import { sql, useWorld } from '../../support/world.ts';

interface Plans {
  /** The number of times that the plan for all values was executed. */
  readonly generic: number;
  /** The number of times that a plan was made for the values of one execution. */
  readonly custom: number;
}

/** PostgreSQL plans the first executions for their values, and then compares. */
const trials = 5;
const executions = 20;

const newestFirst = { createdAt: 'desc', id: 'desc' } as const;
const activities = new TableStatements(Activity, activityView);

describe('statements of lists', () => {
  const world = useWorld();

  before(async () => {
    await sql(
      world.acme,
      `begin;
       set local session_replication_role = replica;
       insert into activities (activity_code, user_id, comment, entity_id, recorded_by, recorded_from)
         select 100 + i % 40, 1 + i % 20, 'Called about order ' || i, 1 + i % 100, 1, '10.0.0.1'
           from generate_series(1, 20000) i;
       commit`,
    );
    await sql(world.acme, 'analyze activities');
  });

  /** Executes a list many times in one session, as a connection of the service does. */
  function plansOf(limit: number): Promise<Plans | undefined> {
    return withConnection(world.acme.adminUrl, async client => {
      const { text, values } = activities.selectJson([], { orderBy: newestFirst, limit });
      for (let execution = 0; execution < executions; execution++) {
        await client.query({ name: 'list', text, values: [...values] });
      }

      const { rows } = await client.query<Plans>(
        `select generic_plans::integer as generic, custom_plans::integer as custom
           from pg_prepared_statements where name = 'list'`,
      );
      return rows[0];
    });
  }

  for (const limit of [1, 20, 50, 100, 300, 1_000]) {
    it(`the newest ${limit} of many records are not planned anew in each request`, async () => {
      const plans = await plansOf(limit);

      expect(plans?.custom).to.be.at.most(trials);
      expect(plans?.generic).to.be.at.least(executions - trials);
    });
  }
});
