import type pg from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import { OperatorError } from '../../../log/operator-error.ts';
import { inTransaction } from '../../../postgres/in-transaction.ts';
import { quoteIdentifier, quoteLiteral } from '../../../postgres/quote.ts';
import { type HistoryKind, historyKinds } from '../../retention/history-kinds.ts';
import { type ArchivedHistory, batchIds } from './archived-history.ts';
import { forEachLine, RowDigest } from './row-digest.ts';

/**
 * Space is reclaimed after the removal of so many rows. Until then, a list of the oldest rows skips their entries in
 * the index, which takes at most 5 ms. A vacuum for fewer rows would take longer than their removal, because it reads
 * all indexes.
 */
const maxUnreclaimed = 500_000;

interface RemovalContext {
  /** Of the tenant, for messages. */
  readonly slug: string;
  /** Receives how many rows of the archive the database does not have any more. */
  readonly onProgress: (rows: number) => Promise<void>;
  /** After its abort no further batch is begun. */
  readonly signal: AbortSignal | undefined;
}

/**
 * Removes the rows that an archive has, the lowest ids first, in short transactions of at most `batchIds` rows.
 *
 *   R1 (proof) A batch is committed only if the rows that it removed are, byte for byte, the rows that the archive has
 *      in the same range of ids before the same cutoff; or if it removed none. So no row goes that the archive does not
 *      have, whatever was written to the database since the archive.
 *   R2 (whole batches) A batch is removed as a whole or not at all. So a run that was killed is continued by doing the
 *      same again with the same archive: batches that are gone remove nothing.
 *
 * @param client a session with `canonicalTextSettings`, as that of the archive
 * @returns false if it was interrupted
 * @throws {OperatorError} when the database and the archive differ; the batches before that one are removed
 */
export async function removeRows(
  client: pg.Client,
  kind: HistoryKind,
  cutoff: Date,
  history: ArchivedHistory,
  { slug, onProgress, signal }: RemovalContext,
): Promise<boolean> {
  let rows = 0;
  let unreclaimed = 0;
  for (const [batch, archived] of history.batches) {
    if (signal?.aborted) return false;
    const removed = await inTransaction(client, async () => {
      const found = await removeBatch(client, kind, batch, cutoff, history.columns);
      if (found.rows > 0 && !found.equals(archived))
        throw new OperatorError(
          `${found.rows} ${historyKinds[kind].noun} are not the ${archived.rows} that its archive has: ${remedy(slug)}`,
        );
      return found.rows;
    });
    rows += archived.rows;
    unreclaimed += removed;
    if (unreclaimed >= maxUnreclaimed) {
      await reclaimSpace(client, kind);
      unreclaimed = 0;
    }
    await markRemovedEntries(client, kind);
    await onProgress(rows);
  }
  return true;
}

async function removeBatch(
  client: pg.Client,
  kind: HistoryKind,
  batch: number,
  cutoff: Date,
  columns: readonly string[],
): Promise<RowDigest> {
  const range = [batch * batchIds, (batch + 1) * batchIds - 1, quoteLiteral(cutoff.toISOString())];
  const call = `${historyKinds[kind].remove}(${range.join(', ')})`;
  const digest = new RowDigest();
  const rows = client.query(copyTo(`copy (select ${columns.map(quoteIdentifier).join(', ')} from ${call}) to stdout`));
  await forEachLine(rows, line => digest.add(line));
  return digest;
}

/** @throws {OperatorError} when the table has rows from before the cutoff, which came after the archive was made */
export async function requireNoOldRows(
  client: pg.Client,
  kind: HistoryKind,
  cutoff: Date,
  slug: string,
): Promise<void> {
  const { table, noun } = historyKinds[kind];
  const { rowCount } = await client.query(`select from ${table} where created_at < $1 limit 1`, [cutoff]);
  if (!rowCount) return;
  const before = cutoff.toISOString().slice(0, 10);
  throw new OperatorError(`it has older ${noun} than ${before} that its archive does not have: ${remedy(slug)}`);
}

const remedy = (slug: string): string =>
  `run bin/backoffice backup run ${slug}, then bin/backoffice retention apply ${slug}`;

/**
 * Reads the oldest row, by its time and by its id. PostgreSQL marks the index entries of the removed rows before it as
 * dead, and the next reader of the oldest rows does not look each of them up in the table.
 */
async function markRemovedEntries(client: pg.Client, kind: HistoryKind): Promise<void> {
  for (const order of ['created_at, id', 'id'])
    await client.query(`select from ${historyKinds[kind].table} order by ${order} limit 1`);
}

/**
 * Makes the space of removed rows free for new ones, and removes their entries from the indexes, without waiting for
 * autovacuum, which comes when a fifth of the table is gone. Requests go on: at the pace of autovacuum, and without the
 * step that locks the table.
 */
export async function reclaimSpace(client: pg.Client, kind: HistoryKind): Promise<void> {
  await client.query('set vacuum_cost_delay = 2');
  await client.query(`vacuum (analyze, truncate off) ${historyKinds[kind].table}`);
}
