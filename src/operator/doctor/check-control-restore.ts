import type pg from 'pg';
import { lockKey, lockSpaces } from '../../lib/postgres/advisory-locks.ts';
import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { repeatCommand, restoredFromOf, restoringName } from '../recovery/restoring-database.ts';
import { type Finding, toFinding } from './finding.ts';
import { psqlCommand } from './psql-command.ts';

/** Traces that restores of the control database itself have left. */
export interface ControlRestoreFacts {
  /** Databases that were made for a restore. */
  leftovers: string[];
  /** The source of a restore of the control database that has not ended. */
  restoredFrom: string | undefined;
  /** True while a process restores the control database. */
  isBusy: boolean;
}

/**
 * Reads the traces of restores on the server of the control database. The lock of a restore is
 * in the database `postgres`, because the control database may not exist (`restoreControl`).
 */
export async function readControlRestore(client: pg.Client): Promise<ControlRestoreFacts> {
  const name = client.database ?? '';
  const { rows } = await client.query<{
    leftovers: string[];
    comment: string | null;
    isBusy: boolean;
  }>(
    `select array(select datname::text from pg_database where datname = any ($1) order by datname) as leftovers,
            obj_description('tenants'::regclass, 'pg_class') as comment,
            exists (select from pg_locks l join pg_database d on d.oid = l.database
                     where locktype = 'advisory' and granted and datname = 'postgres'
                       and classid::bigint = $2 and objid::bigint = $3) as "isBusy"`,
    [[restoringName(name), restoringName(name, 'later')], lockSpaces.control, lockKey(name)],
  );

  const { leftovers = [], comment, isBusy = false } = rows[0] ?? {};
  return { leftovers, restoredFrom: restoredFromOf(comment), isBusy };
}

/**
 * Reports a restore of the control database that no process continues. While the control
 * database has no tenant, only the restore runs (`requireNoRestore`): so these are leftovers
 * beside a control database in use.
 * @param server the name of the server of the control database
 */
export function checkControlRestore(
  { leftovers, restoredFrom, isBusy }: ControlRestoreFacts,
  server: string,
): Finding[] {
  if (isBusy) return [];

  const report = (problem: string, remedy: string): Finding =>
    toFinding(server, { check: 'unfinished_control_restore', problem, remedy });
  const findings = leftovers.map(name =>
    report(
      `a restore of the control database was given up, and left database ${name}, with users and password hashes`,
      `If the control database in use is the right one, drop the other: ${psqlCommand(`drop database ${quote(name)}`)}`,
    ),
  );
  if (restoredFrom === undefined) return findings;

  const problem = `the control database was restored from ${restoredFrom}, and the command has not ended`;
  const remedy = `Run it again, with --all if lost tenants are to be restored: ${repeatCommand(restoredFrom)}`;

  return [...findings, report(problem, remedy)];
}
