import type pg from 'pg';
import { OperatorError } from '../../../log/operator-error.ts';
import { type HistoryKind, historyKinds } from '../../retention/history-kinds.ts';
import type { DueRemoval, RetentionCandidate } from './retention-candidates.ts';

/** How far clocks may differ before nothing is removed. */
export const maxClockDifferenceMs = 5 * 60_000;

interface Facts {
  guid: string;
  version: string;
  now: Date;
  isReady: boolean;
}

interface Bounds {
  oldest: Date | null;
  newest: Date | null;
}

/** What a tenant's database says before anything is removed from it. */
export interface HistoryFacts {
  /** The last migration of the database. */
  readonly schemaVersion: string;
  /** The kinds with rows that are old enough. */
  readonly kinds: ReadonlySet<HistoryKind>;
}

/**
 * Checks a database from which rows are to be removed, with statements that read one row each.
 * @throws {OperatorError} when it is that of another tenant, its schema is older than this build's, or a clock is
 *   wrong: that of the server differs from this machine's, or there are rows from the future
 */
export async function readHistoryFacts(
  client: pg.Client,
  { guid, slug, due }: Pick<RetentionCandidate, 'guid' | 'slug' | 'due'>,
): Promise<HistoryFacts> {
  const { rows } = await client.query<Facts>(
    `select guid, schema_version as version, clock_timestamp() as now,
            to_regprocedure('remove_old_activities(bigint, bigint, timestamptz)') is not null as "isReady"
       from tenant_identity`,
  );
  const [facts] = rows;
  if (!facts || facts.guid !== guid)
    throw new OperatorError('the database belongs to another tenant: run bin/backoffice doctor');
  if (!facts.isReady)
    throw new OperatorError(`its schema is older than this build: run bin/backoffice migrate ${slug}`);
  if (Math.abs(facts.now.getTime() - Date.now()) > maxClockDifferenceMs)
    throw new OperatorError(
      `its server says it is ${facts.now.toISOString()}, and this machine does not: set the clock`,
    );
  const kinds = new Set<HistoryKind>();
  for (const removal of due) if (await hasOldRows(client, removal, facts.now)) kinds.add(removal.kind);
  return { schemaVersion: facts.version, kinds };
}

async function hasOldRows(client: pg.Client, { kind, cutoff, unfinished }: DueRemoval, now: Date): Promise<boolean> {
  const { table, noun } = historyKinds[kind];
  const { rows } = await client.query<Bounds>(
    `select min(created_at) as oldest, max(created_at) as newest from ${table}`,
  );
  const { oldest, newest } = rows[0] ?? { oldest: null, newest: null };
  if (newest && newest.getTime() > now.getTime() + maxClockDifferenceMs)
    throw new OperatorError(
      `it has ${noun} of ${newest.toISOString()}, which has not come yet: a clock is or was wrong, so nothing is removed`,
    );
  return unfinished !== undefined || (oldest !== null && oldest < cutoff);
}
