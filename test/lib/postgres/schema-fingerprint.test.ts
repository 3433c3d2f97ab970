import { expect } from 'chai';
import type pg from 'pg';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import {
  differencesOf,
  fingerprint,
  schemaObjects,
} from '../../../src/lib/postgres/schema-fingerprint.ts';
import { changes, schema } from '../../support/sample-schema.ts';
import { useScratchDatabases } from '../../support/scratch-databases.ts';

describe('schema fingerprint', () => {
  const createScratch = useScratchDatabases();

  it('every change of an object changes the fingerprint, and the first difference names the object', async () => {
    await withConnection(await createScratch(), async client => {
      await client.query(schema);
      const before = await stateOf(client);

      for (const [change, object] of changes) {
        await client.query(`begin; ${change}`);
        const after = await stateOf(client);
        await client.query('rollback');

        expect(after.fingerprint, change).not.to.equal(before.fingerprint);
        const difference = differencesOf(after.objects, before.objects)[0]?.object ?? '';
        expect(difference.startsWith(object), `${change}: ${difference}`).to.equal(true);
      }

      expect(await stateOf(client)).to.deep.equal(before);
    });
  });

  it('databases with the same objects have the same fingerprint, whatever their OIDs and column positions are', async () => {
    const [one, other] = await Promise.all([createScratch(), createScratch()]);

    const first = await withConnection(one, async client => {
      await client.query(schema);
      return fingerprint(client);
    });

    const second = await withConnection(other, async client => {
      await client.query(
        `create table spare (); drop table spare; ${schema.replace('note text, ', '')}`.replace(
          'create index things_note_index',
          'alter table things add column note text; create index things_note_index',
        ),
      );
      return fingerprint(client);
    });

    expect(second).to.equal(first);
  });
});

async function stateOf(
  client: pg.Client,
): Promise<{ fingerprint: string; objects: Map<string, string> }> {
  return { fingerprint: await fingerprint(client), objects: await schemaObjects(client) };
}
