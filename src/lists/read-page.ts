import type { ListExport } from '../http/lists/list-export.ts';
import { nextPath, Page } from '../http/lists/list-page.ts';
import type { ListQuery } from '../http/lists/list-query.ts';
import { Representation } from '../http/representation.ts';
import type { SelectOptions } from '../postgres/table-reads.ts';
import { countRecords } from './count-records.ts';
import { exportList } from './export-list.ts';
import { includer } from './include-fields.ts';
import { type ListedRecord, type ListSource, readRecords } from './read-records.ts';

/**
 * Returns a list: as its parameters ask for it, or the plain list of a request without them.
 * @param plain the order and the limit of the plain list
 */
export async function readList(query: ListQuery | undefined, source: ListSource, plain: SelectOptions): Promise<never> {
  if (query) return (await readPage(query, source)) as never;
  const { table, conditions, reads, toResponse } = source;
  const rows = await reads.read(table.selectJson(conditions, { ...plain, isRowPerRecord: toResponse !== undefined }));
  return (await Representation.ofList(textsOf(rows as unknown as ListedRecord[], toResponse))) as never;
}

/**
 * Returns what a request asks of a list: a page, or the list as CSV. Reads one record more than the page has, to know
 * whether there are more.
 */
export async function readPage(query: ListQuery, source: ListSource): Promise<Page | ListExport> {
  if (query.isExport) return exportList(query, source);
  const { limit } = query;
  const rows = await readRecords(query, source, limit === undefined ? undefined : limit + 1);
  const records = rows.slice(0, limit);
  const last = records.length < rows.length ? records.at(-1) : undefined;
  const total = query.isCounted ? await countRecords(query, source) : undefined;
  const count = query.isCounted ? { length: records.length, isFirst: query.after === undefined, total } : undefined;
  const include = await includer(query, source, records);
  const representation = await Representation.ofList(textsOf(records, source.toResponse, include));
  return new Page(representation, { next: last && nextPath(query, last.keys), count });
}

/** The records as JSON text, made one at a time: 1,000 of the audit log have 32 KB each. */
function* textsOf(
  records: readonly ListedRecord[],
  toResponse = (json: string) => json,
  include = (json: string) => json,
): Iterable<string> {
  for (const { json } of records) yield include(toResponse(json));
}
