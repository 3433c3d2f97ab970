import { type HistoryKind, historyKinds, kindNames } from '../../retention/history-kinds.ts';
import { ArchiveFault } from '../format/archive-fault.ts';
import type { ArchiveReader } from '../format/archive-file.ts';
import type { ArchivedTable } from '../format/archive-manifest.ts';
import { forEachLine, RowDigest } from './row-digest.ts';

/** Ids of a batch: rows are removed in transactions of at most so many. */
export const batchIds = 5_000;

/** The rows of one kind that an archive has and that are older than a cutoff. */
export interface ArchivedHistory {
  /** All columns of the table in the order in which the digests have them. */
  readonly columns: readonly string[];
  /** Rows of the table in the archive, of any age. */
  readonly total: number;
  /** Rows before the cutoff. */
  readonly rows: number;
  /** The times of the first and the last row before the cutoff, as PostgreSQL writes them in UTC. */
  readonly oldest: string | null;
  readonly newest: string | null;
  /** By the number of the batch: the id divided by `batchIds`. Ascending. */
  readonly batches: ReadonlyMap<number, RowDigest>;
}

/**
 * Reads every byte of an archive, checks it, and computes digests of the rows that are older than the cutoffs.
 * @param cutoffs beginnings of days in UTC; a kind without a cutoff is left out
 * @throws {ArchiveFault} when a byte was changed, or the archive has no such table
 */
export async function readArchivedHistory(
  archive: ArchiveReader,
  cutoffs: Partial<Record<HistoryKind, Date>>,
): Promise<Map<HistoryKind, ArchivedHistory>> {
  const found = new Map<HistoryKind, ArchivedHistory>();
  for await (const { table, rows } of archive.tables()) {
    const kind = kindNames.find(name => historyKinds[name].table === table.name);
    const cutoff = kind && cutoffs[kind];
    if (kind && cutoff) found.set(kind, await readTable(table, rows, cutoff));
  }
  for (const kind of kindNames)
    if (cutoffs[kind] && !found.has(kind))
      throw new ArchiveFault('wrong_contents', `it has no table ${historyKinds[kind].table}`);
  return found;
}

async function readTable(
  { columns, rows: total }: ArchivedTable,
  rows: AsyncIterable<Buffer>,
  cutoff: Date,
): Promise<ArchivedHistory> {
  const [idAt, timeAt] = [columns.indexOf('id'), columns.indexOf('created_at')];
  if (idAt < 0 || timeAt < 0) throw new ArchiveFault('wrong_contents', 'its rows have neither an id nor a time');
  const needed = Math.max(idAt, timeAt) + 1;
  // `before` and the times of the rows begin with a year of four digits, so their texts compare like the times. Should
  // a row have another year, the database removes other rows than these, and the removal is rolled back.
  const before = cutoff.toISOString().slice(0, 10);
  const digests = new Map<number, RowDigest>();
  let old = 0;
  let oldest: string | null = null;
  let newest: string | null = null;
  await forEachLine(rows, line => {
    const values = line.toString('latin1').split('\t', needed); // ids and times are ASCII
    const time = values[timeAt] ?? '';
    if (time >= before) return;
    old++;
    if (oldest === null || time < oldest) oldest = time;
    if (newest === null || time > newest) newest = time;
    const batch = Math.floor(Number(values[idAt]) / batchIds);
    let digest = digests.get(batch);
    if (!digest) {
      digest = new RowDigest();
      digests.set(batch, digest);
    }
    digest.add(line);
  });
  const batches = new Map([...digests].sort(([one], [other]) => one - other));
  return { columns, total, rows: old, oldest, newest, batches };
}
