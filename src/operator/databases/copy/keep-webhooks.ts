import type pg from 'pg';
import { compareCursors, parseCursor } from '../../../sales/events/change-cursor.ts';
import { inSnapshot } from '../../schema/snapshot.ts';
import { type DataTable, listDataTables } from '../../schema/tenant-tables.ts';
import { changeInEpoch } from '../store/database-stamp.ts';
import { type CopyEnds, replaceTables } from './replace-tables.ts';

/**
 * The tables that a tenant keeps when it gets other data: the receivers of its changes, with
 * their secrets, and what was sent. They are the tenant's present decisions, and not part of
 * its earlier data.
 */
export const keptTables: readonly string[] = [
  'webhooks',
  'webhook_secrets',
  'webhook_messages',
  'webhook_deliveries',
];

/**
 * Gives a database the webhooks of the current one in place of its own, so that an exchange of
 * the two brings back no receiver and no secret that the tenant has removed. Both are closed.
 * It can be repeated.
 *
 * An endpoint that both have goes on at the earlier of its two places in the feed: the target
 * may have changes that the current database does not know, and that had not arrived when the
 * target was closed. From the later place, these would be skipped. Each row gets another
 * version, so that no process saves a state that it has read from the current database.
 * The sequences of the tables go on by `carry numbers`, which follows.
 * @param copyEnds `source` is the current database
 */
export async function keepWebhooks(copyEnds: CopyEnds): Promise<void> {
  const { source, target, run } = copyEnds;
  await inSnapshot(source, async () => {
    const tables = await listKeptTables(source);
    await changeInEpoch(target, run, async () => {
      const before = await readPlaces(target);
      await replaceTables(copyEnds, tables);
      await goBack(target, before);
    });
  });
}

/** Returns only the tables of webhooks: others may be of a kind that cannot be copied. */
async function listKeptTables(client: pg.Client): Promise<DataTable[]> {
  const { rows } = await client.query<{ name: string }>(
    `select relname as name from pg_class where relnamespace = 'public'::regnamespace and relname <> all ($1)`,
    [keptTables],
  );
  return listDataTables(
    client,
    rows.map(({ name }) => name),
  );
}

/** The place of an endpoint in the feed of changes. */
interface StoredPlace {
  readonly id: number;
  readonly position: string;
  /** The time of the position, as PostgreSQL writes it. */
  readonly at: string;
  readonly version: string;
}

async function readPlaces(client: pg.Client): Promise<StoredPlace[]> {
  const { rows } = await client.query<StoredPlace>(
    'select id, position, position_at::text as at, version::text from webhooks',
  );
  return rows;
}

/** Moves endpoints back to the places that they had in these data, where those are earlier. */
async function goBack(target: pg.Client, before: readonly StoredPlace[]): Promise<void> {
  const places = (await readPlaces(target)).map(now => {
    const own = before.find(({ id }) => id === now.id);
    const { position, at } = own && isEarlier(own, now) ? own : now;
    const version = Math.max(Number(now.version), Number(own?.version ?? 0)) + 1;
    return { id: now.id, position, at, version };
  });
  await target.query(
    `update webhooks w set position = p.position, position_at = p.at, version = p.version
       from json_to_recordset($1) as p (id integer, position text, at timestamptz, version bigint)
      where p.id = w.id`,
    [JSON.stringify(places)],
  );
}

function isEarlier(one: StoredPlace, other: StoredPlace): boolean {
  const [first, second] = [parseCursor(one.position), parseCursor(other.position)];
  return first !== undefined && second !== undefined && compareCursors(first, second) < 0;
}
