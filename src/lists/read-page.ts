import type { ListExport } from '../http/lists/list-export.ts';
import { nextPath, Page } from '../http/lists/list-page.ts';
import type { ListQuery } from '../http/lists/list-query.ts';
import { Representation } from '../http/representation.ts';
import { exportList } from './export-list.ts';
import { type ListedRecord, type ListSource, readRecords } from './read-records.ts';

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
  const representation = await Representation.ofList(textsOf(records, source.toResponse));
  return new Page(representation, last && nextPath(query, last.keys));
}

function* textsOf(records: readonly ListedRecord[], toResponse = (json: string) => json): Iterable<string> {
  for (const { json } of records) yield toResponse(json);
}
