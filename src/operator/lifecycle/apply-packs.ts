import type pg from 'pg';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import { type ComparedRow, columnOf, comparePack } from './compare-pack.ts';
import type { Pack } from './read-pack.ts';

/** SQLSTATE of the trigger that limits the size of a table. */
const tableFull = 'SB001';

export interface AppliedPack {
  readonly pack: Pack;
  /** The number of rows that were inserted. */
  readonly added: number;
  /** The comparison before the rows were inserted. */
  readonly compared: readonly ComparedRow[];
}

/**
 * Inserts the missing rows of packs, in one transaction: all of them or none. Rows that the
 * tenant changed or deleted stay as they are. Triggers write an audit entry for each row,
 * without a user.
 * @param client a connection to the tenant's database, as the owner of its tables
 * @throws {OperatorError} when a table would exceed its maximum size
 */
export async function applyPacks(
  client: pg.ClientBase,
  packs: readonly Pack[],
): Promise<AppliedPack[]> {
  const applied: AppliedPack[] = [];
  await inTransaction(client, async () => {
    for (const pack of packs) applied.push(await applyPack(client, pack));
  });
  return applied;
}

async function applyPack(client: pg.ClientBase, pack: Pack): Promise<AppliedPack> {
  const compared = await comparePack(client, pack);
  const missing = compared.filter(({ state }) => state === 'missing').map(({ row }) => row);
  if (missing.length === 0) return { pack, added: 0, compared };

  const columns = Object.keys(missing[0] ?? {}).map(columnOf);
  const records = missing.map(row =>
    Object.fromEntries(Object.entries(row).map(([field, value]) => [columnOf(field), value])),
  );

  try {
    // A user of the tenant may create the same code meanwhile: that row stays.
    const { rowCount } = await client.query(
      `insert into ${pack.table} (${columns.join(', ')})
       select ${columns.join(', ')} from jsonb_populate_recordset(null::${pack.table}, $1::jsonb) on conflict do nothing`,
      [JSON.stringify(records)],
    );
    return { pack, added: rowCount ?? 0, compared };
  } catch (cause) {
    if (sqlState(cause) !== tableFull) throw cause;

    throw new OperatorError(
      `The pack ${pack.name} has ${missing.length} rows that the tenant lacks, and the table ` +
        `${pack.table} may not grow by as many. Nothing was added`,
      { cause },
    );
  }
}
