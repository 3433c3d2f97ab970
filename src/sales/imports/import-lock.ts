import type pg from 'pg';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import type { Statement } from '../../lib/postgres/statement.ts';

/** Advisory lock in a tenant's database: one import at a time, over all processes. */
const importLock = 727_111;
/** Longer than an import may take. */
const maxWaitMs = 25_000;
const lockNotAvailable = '55P03';

/**
 * Locks the imports of the tenant until the end of the transaction, if nobody holds the lock or
 * waits for it: PostgreSQL gives no lock that conflicts with one that another session waits
 * for.
 */
export const tryLockImports: Statement = {
  name: 'try_lock_imports',
  text: `select pg_try_advisory_xact_lock(${importLock}) as locked`,
  values: [],
};

/**
 * Lets no import of the tenant begin until the connection ends, and waits for the running one;
 * 25 s at most. The wait itself announces that the tenant is to be moved or changed: an import
 * that begins meanwhile is refused.
 */
export async function holdImports(database: pg.Client): Promise<void> {
  try {
    await inTransaction(database, async () => {
      await database.query(`set local lock_timeout = ${maxWaitMs}`);
      await database.query(`select pg_advisory_lock(${importLock})`);
    });
  } catch (error) {
    if (sqlState(error) !== lockNotAvailable) throw error;
  }
}
