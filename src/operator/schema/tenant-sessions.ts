import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { quoteIdentifier, quoteLiteral } from '../../lib/postgres/quote.ts';

const maxEndMs = 5_000;
const pollMs = 20;

/**
 * SQL: the sessions of a role in the connected database. It is cheaper than `pg_stat_activity`,
 * which reads more catalogs.
 */
const sessionsOf = (role: string): string =>
  `pg_stat_get_activity(null) where usesysid = to_regrole(${quoteLiteral(quoteIdentifier(role))})
     and datid = (select datid from pg_stat_get_activity(pg_backend_pid()))`;

/**
 * Returns the number of sessions of a role in the connected database, and the number of those
 * that run a statement or a transaction.
 */
export async function countSessions(
  database: pg.Client,
  role: string,
): Promise<{ all: number; busy: number }> {
  const { rows } = await database.query<{ all: number; busy: number }>(
    `select count(*)::int as all, (count(*) filter (where state <> 'idle'))::int as busy from ${sessionsOf(role)}`,
  );
  return rows[0] ?? { all: 0, busy: 0 };
}

/**
 * Ends every session of a role in the connected database, also inside a transaction. Resolves
 * when they are gone.
 * @throws {OperatorError} when one of them is still there after 5 s
 */
export async function endSessionsOf(database: pg.Client, role: string): Promise<void> {
  // Until the snapshot is cleared, a transaction sees the sessions that its first query
  // returned.
  const text = `select pg_stat_clear_snapshot(); select pg_terminate_backend(pid) from ${sessionsOf(role)}`;
  for (const deadline = performance.now() + maxEndMs; ; await sleep(pollMs)) {
    const results: unknown = await database.query(text);
    if ((results as pg.QueryResult[]).at(-1)?.rowCount === 0) return;
    if (performance.now() > deadline) {
      throw new OperatorError(`a session of ${role} could not be ended`);
    }
  }
}

/**
 * Lets the login of the connection see and end the sessions of a role: only a superuser or a
 * member of the role may. The role exists. The login has created it, or may grant it for
 * another reason.
 */
export async function becomeMember(database: pg.Client, role: string): Promise<void> {
  const { rowCount } = await database.query(
    `select from pg_roles where rolname = $1 and not pg_has_role(oid, 'usage')`,
    [role],
  );
  if (rowCount) await database.query(`grant ${quoteIdentifier(role)} to current_user`);
}
