import { expect } from 'chai';
import type pg from 'pg';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import {
  type Difference,
  differencesOf,
  schemaObjects,
} from '../../../src/lib/postgres/schema-fingerprint.ts';
import { independentDifferences } from '../../../src/operator/schema/repair-drift.ts';
import { changes, schema } from '../../support/sample-schema.ts';
import { useScratchDatabases } from '../../support/scratch-databases.ts';

/**
 * Objects that are missing or have another definition, and have data, or a form of which no
 * statement can be made.
 */
const notRepaired = /^(table|column|sequence|type|policy|extension) /;

/**
 * A repair may show another difference: that of rights on a table takes those on its columns
 * away.
 */
const maxChecks = 4;

describe('repairs of schema drift', () => {
  const createScratch = useScratchDatabases();

  /**
   * Repairs all differences that are told at once, as `doctor --fix` does: a repair that fails
   * changes nothing. Another check finds what is left, and so on.
   * @returns what is left in the end
   */
  async function repairAll(client: pg.Client, wanted: Map<string, string>): Promise<Difference[]> {
    let left = differencesOf(await schemaObjects(client), wanted);
    for (let check = 0; check < maxChecks && left.length > 0; check++) {
      for (const { sql = [] } of independentDifferences(left, 'office_tenant')) {
        await client.query('savepoint repair');
        await client.query(sql.join(';')).catch(() => client.query('rollback to repair'));
      }
      left = differencesOf(await schemaObjects(client), wanted);
    }

    return left;
  }

  it('the repair of a change undoes it, and the only changes without a repair are tables and columns that differ', async () => {
    await withConnection(await createScratch(), async client => {
      await client.query(schema);
      const wanted = await schemaObjects(client);

      let repaired = 0;
      for (const [change] of changes) {
        await client.query(`begin; ${change}`);
        const left = await repairAll(client, wanted);
        await client.query('rollback');

        if (left.length === 0) repaired++;
        for (const { object, wanted: definition } of left.slice(0, 1)) {
          expect(object, change).to.match(notRepaired);
          expect(definition, change).to.be.a('string');
        }
      }
      expect(repaired).to.be.above(changes.length / 2);
    });
  });

  it('a table and a column that the template does not have are kept with their data', async () => {
    await withConnection(await createScratch(), async client => {
      await client.query(schema);
      const wanted = await schemaObjects(client);
      await client.query(`create table notes (id serial primary key, text text); insert into notes (text) values ('mine');
                          alter table things add column extra text; insert into things (extra) values ('also mine')`);

      await client.query('begin');
      expect(await repairAll(client, wanted)).to.deep.equal([]);

      const { rows } = await client.query(
        'select text from kept.notes union all select extra from kept."things.extra"',
      );
      expect(rows).to.deep.equal([{ text: 'mine' }, { text: 'also mine' }]);
    });
  });
});
