import type pg from 'pg';
import {
  isProvedUnchanged,
  readTableFingerprints,
  type TableFingerprints,
} from '../../../lib/postgres/change-counters.ts';
import { type OtherSession, sessionsText } from '../../schema/other-sessions.ts';
import type { DataTable } from '../../schema/tenant-tables.ts';
import type { CopiedPrefix, NumberedTable } from './copy-ahead.ts';

/**
 * The tables that the target contains, and the facts about the source when they were copied.
 */
export interface CopiedTables {
  readonly tables: readonly DataTable[];
  /** The append-only tables among them: behind the fence, only their last rows are missing. */
  readonly numbered: readonly NumberedTable[];
  prefixes: ReadonlyMap<string, CopiedPrefix>;
  /** The fingerprints of the source from before the copy, by table. */
  readonly fingerprints: ReadonlyMap<string, TableFingerprints>;
  /** The time that each table that was copied whole took to copy and to compare, in ms. */
  readonly durations: ReadonlyMap<string, number>;
}

/** The data that has to be copied behind the fence. */
export interface MissingData {
  /** Tables that have to be copied whole. */
  readonly whole: readonly DataTable[];
  /** Append-only tables of which only the last rows have to be copied. */
  readonly ends: readonly NumberedTable[];
  /** The estimated time of the copy, in ms, by the time that the tables have taken before. */
  readonly estimatedMs: number;
  /** Sessions of other logins, whose changes may not be counted yet. */
  readonly others: readonly OtherSession[];
}

/**
 * Returns the data that would have to be copied if the source were closed now. An append-only
 * table has to be copied whole if rows of it were changed or deleted, as by an operator who has
 * switched its trigger off.
 * @param others the sessions of other logins, from before the counters are read (the invariant
 *   *order* of `isProvedUnchanged`)
 */
export async function findMissingData(
  source: pg.Client,
  copied: CopiedTables,
  others: readonly OtherSession[],
): Promise<MissingData> {
  const isUnused = others.length === 0;
  const fingerprints = await readTableFingerprints(source);

  const isChanged = ({ name }: DataTable): boolean => {
    const which = copied.prefixes.has(name) ? 'withoutInserts' : 'all';
    const fingerprint = fingerprints.get(name)?.[which];
    const now = fingerprint === undefined ? undefined : { isUnused, fingerprint };
    return !isProvedUnchanged(copied.fingerprints.get(name)?.[which], now);
  };

  const changed = new Set(copied.tables.filter(isChanged).map(({ name }) => name));
  const names = withReferring(changed, copied.tables, await readReferences(source));
  const whole = copied.tables.filter(({ name }) => names.has(name));
  const ends = copied.numbered.filter(({ name }) => !names.has(name));
  const ms = whole.map(
    ({ name }) => copied.durations.get(name) ?? copied.prefixes.get(name)?.copyMs ?? 0,
  );

  return { whole, ends, estimatedMs: ms.reduce((sum, each) => sum + each, 0), others };
}

/** Describes why the pause would be long. */
export function describe({ whole, others }: MissingData): string {
  const names = whole.map(({ name }) => name).join(', ');
  return others.length > 0
    ? `others are connected to the tenant database, so everything would be copied again: ${sessionsText(others)}. ` +
        'Let the command end their sessions (--end-sessions)'
    : `much of its data changes all the time (${names})`;
}

/** Returns the pairs of tables of which the first refers to the second. */
async function readReferences(client: pg.Client): Promise<{ from: string; to: string }[]> {
  const { rows } = await client.query<{ from: string; to: string }>(
    `select f.relname as from, t.relname as to from pg_constraint k
       join pg_class f on f.oid = conrelid join pg_class t on t.oid = confrelid
      where contype = 'f' and connamespace = 'public'::regnamespace and conrelid <> confrelid`,
  );
  return rows;
}

/** Adds the tables that refer to these: a table can be truncated only together with them. */
function withReferring(
  names: Set<string>,
  tables: readonly DataTable[],
  references: readonly { from: string; to: string }[],
): Set<string> {
  const all = new Set(names);
  // A table comes after the tables that it refers to, so one pass reaches all of them.
  for (const { name } of tables) {
    if (references.some(({ from, to }) => from === name && all.has(to))) all.add(name);
  }
  return all;
}
