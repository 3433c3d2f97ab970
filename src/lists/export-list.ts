import { csvRow } from '../http/csv.ts';
import { ListExport } from '../http/lists/list-export.ts';
import type { ListQuery } from '../http/lists/list-query.ts';
import { type ListSource, readRecords } from './read-records.ts';

/** The size of a piece to aim at, in characters: memory of an export is a few pieces. */
const pieceLength = 256 * 1024;
const firstRecords = 100;
const maxRecords = 2_000;

/**
 * Exports a list as CSV: the fields of the view in the header, then every record that the filters match, or as many as
 * `limit` says. Each piece is a page of its own, so that no connection and no transaction stays open while the client
 * receives the pieces before it. A record that exists, and keeps its sorted fields, from the beginning to the end
 * occurs once; a record that is created, deleted or changed meanwhile may occur or not.
 */
export async function exportList(query: ListQuery, source: ListSource): Promise<ListExport> {
  const pieces = exportPieces(query, source);
  const first = await pieces.next(); // an error before the first byte becomes a problem
  return new ListExport(query.path.split('/').at(-1) ?? 'list', resume(first.value ?? '', pieces));
}

async function* resume(first: string, pieces: AsyncGenerator<string>): AsyncGenerator<string> {
  yield first;
  yield* pieces;
}

async function* exportPieces(query: ListQuery, source: ListSource): AsyncGenerator<string> {
  let text = (query.hasByteOrderMark ? '\uFEFF' : '') + csvRow(query.contract.columns);
  let { after, limit: left = Number.POSITIVE_INFINITY } = query;
  for (let limit = firstRecords; ; ) {
    limit = Math.min(limit, left);
    const records = await readRecords({ ...query, after }, source, limit);
    const headerLength = text.length;
    for (const { json } of records) {
      const record = JSON.parse(source.toResponse?.(json) ?? json) as Record<string, unknown>;
      text += csvRow(query.contract.columns.map(column => record[column]));
    }
    yield text;
    left -= records.length;
    if (records.length < limit || left === 0) return;
    after = records.at(-1)?.keys;
    const recordLength = Math.max(1, (text.length - headerLength) / records.length);
    limit = Math.max(1, Math.min(maxRecords, Math.round(pieceLength / recordLength)));
    text = '';
  }
}
