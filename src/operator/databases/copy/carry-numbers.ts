import type pg from 'pg';
import { quoteIdentifier, quoteLiteral } from '../../../lib/postgres/quote.ts';
import type { LockedTenant } from '../store/database-store.ts';
import { setSequences } from './replace-tables.ts';

/**
 * The last number that each sequence of `public` has given, by its column (`entities.id`), so
 * that a sequence may be renamed; one of no column by its own name.
 */
export type GivenNumbers = ReadonlyMap<string, bigint>;

/**
 * The numbers that a sequence of each type skips where the database that has given the last
 * ones cannot be read. Sequences of other types are left.
 */
export type SkippedNumbers = Readonly<Record<string, bigint>>;

/**
 * More than a tenant gives between two archives, and so few that a sequence lasts for thousands
 * of restores.
 */
export const skippedNumbers = { bigint: 1_000_000n, integer: 100_000n, smallint: 100n };

/** A sequence, with the last number that it has given, or the one before its first. */
interface SequenceRow {
  /** Its key in `GivenNumbers`. */
  readonly key: string;
  readonly name: string;
  readonly type: string;
  readonly last: string;
  readonly min: string;
  readonly max: string;
  readonly increment: string;
}

/** Returns the last number that each sequence of `public` of a database has given. */
export async function readGivenNumbers(client: pg.Client): Promise<GivenNumbers> {
  return new Map((await readSequenceRows(client)).map(({ key, last }) => [key, BigInt(last)]));
}

/**
 * Lets the sequences of `public` of the connected database go on after these numbers, where
 * those are further than its own. A sequence without a number in `given` stays, apart from what
 * it skips. It can be repeated.
 * @param skipped the numbers that each sequence skips in addition
 * @returns the last number of each sequence afterwards, and how many of them were moved
 */
export async function goOnAfter(
  client: pg.Client,
  given: GivenNumbers,
  skipped: SkippedNumbers = {},
): Promise<{ numbers: GivenNumbers; moved: number }> {
  const numbers = new Map<string, bigint>();
  const moved: { name: string; lastValue: string; isCalled: boolean }[] = [];

  for (const { key, name, type, ...row } of await readSequenceRows(client)) {
    const isRising = !row.increment.startsWith('-');
    const [own, min, max] = [BigInt(row.last), BigInt(row.min), BigInt(row.max)];
    const further = furthest(isRising, own, given.get(key) ?? own);
    const skip = skipped[type] ?? 0n;
    const next = isRising ? further + skip : further - skip;
    const last = next > max ? max : next < min ? min : next;

    // The number before the first one is outside the bounds: then none was given.
    const hasMoved = next !== own && (isRising ? next >= min : next <= max);
    numbers.set(key, hasMoved ? last : own);
    if (hasMoved) moved.push({ name, lastValue: String(last), isCalled: true });
  }

  await setSequences(client, moved);
  return { numbers, moved: moved.length };
}

function furthest(isRising: boolean, one: bigint, other: bigint): bigint {
  return one < other === isRising ? other : one;
}

/**
 * Reads the sequences themselves: the view `pg_sequences` has null for one that the login may
 * not read, as if it had given no number. Leaves out one of others, which is of no column, and
 * which the login may not read or set: our records get no number of it.
 */
async function readSequenceRows(client: pg.Client): Promise<SequenceRow[]> {
  const { rows } = await client.query<Omit<SequenceRow, 'last'>>(
    `select coalesce(t.relname || '.' || attname, c.relname) as key, c.relname as name,
            seqtypid::regtype::text as type, seqmin::text as min, seqmax::text as max, seqincrement::text as increment
       from pg_sequence join pg_class c on c.oid = seqrelid
       left join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = c.oid and d.objsubid = 0
         and d.refclassid = 'pg_class'::regclass and d.refobjsubid > 0 and d.deptype in ('a', 'i')
       left join pg_class t on t.oid = d.refobjid
       left join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
      where c.relnamespace = 'public'::regnamespace
        and (t.oid is not null or has_sequence_privilege(c.oid, 'select') and has_sequence_privilege(c.oid, 'update'))
      order by c.relname`,
  );
  if (rows.length === 0) return [];

  const selects = rows.map(
    ({ name, increment }) =>
      `select ${quoteLiteral(name)} as name,
              (last_value - case when is_called then 0 else ${increment}::numeric end)::text as last
         from public.${quoteIdentifier(name)}`,
  );
  const states = await client.query<Pick<SequenceRow, 'name' | 'last'>>(
    selects.join(' union all '),
  );
  const lasts = new Map(states.rows.map(({ name, last }) => [name, last]));

  return rows.map(row => ({ ...row, last: lasts.get(row.name) ?? row.min }));
}

/**
 * Records the last numbers of a database of a tenant, for the time when the database cannot be
 * read.
 */
export async function recordNumbers(
  control: pg.ClientBase,
  databaseId: number,
  numbers: GivenNumbers,
): Promise<void> {
  await control.query('update tenant_databases set numbers = $2 where id = $1', [
    databaseId,
    numbersJson(numbers),
  ]);
}

/**
 * Returns numbers as JSON of `tenant_databases.numbers`: as texts, because JSON may round
 * numbers.
 */
export function numbersJson(numbers: GivenNumbers): string {
  return JSON.stringify(Object.fromEntries([...numbers].map(([name, last]) => [name, `${last}`])));
}

/**
 * Returns the last numbers of a tenant that the control database knows: those that were
 * recorded of its databases, and the entities of its users. A number that a request chose does
 * not count, such as the entity of an activity, which need not exist.
 */
export async function readKnownNumbers(
  control: pg.Client,
  { id }: Pick<LockedTenant, 'id'>,
): Promise<GivenNumbers> {
  const { rows } = await control.query<{ name: string; last: string }>(
    `select key as name, max(value::bigint)::text as last
       from (select key, value from tenant_databases, jsonb_each_text(numbers) where tenant_id = $1
              union all
             select 'entities.id', max(entity_id)::text from users where tenant_id = $1) as known
      where value is not null group by key`,
    [id],
  );

  return new Map(rows.map(({ name, last }) => [name, BigInt(last)]));
}
