import { byteOrderMark, csvRow } from '../../lib/http/request/csv.ts';
import { ListExport } from '../../lib/http/request/list-parameters/list-export.ts';
import type { ListQuery } from '../../lib/http/request/list-parameters/list-query.ts';
import { nextPath, Page } from '../../lib/http/response/list-page.ts';
import { Representation } from '../../lib/http/response/representation.ts';
import type { JsonRow, ListedRecord, SelectOptions } from '../../lib/postgres/table-reads.ts';
import { anyOf, listConditions } from './list-conditions.ts';
import { type ListSource, readRecords } from './read-records.ts';

/**
 * Returns a list as the parameters of the request ask for it; without parameters, the plain
 * list.
 * @param plain the order and the limit of the plain list
 */
export async function readList(
  query: ListQuery | undefined,
  source: ListSource,
  plain: SelectOptions,
): Promise<Page | ListExport | Representation> {
  if (query) return readPage(query, source);

  const { table, conditions, reads, json, toResponse } = source;
  const select = table.selectJson(conditions, { ...plain, json });
  const rows = await reads.read(select);

  return Representation.ofList(textsOf(rows, select.json ? undefined : toResponse));
}

/**
 * Returns the part of a list that a request asks for: a page, or the list as CSV. Reads one
 * record more than the page has, to know whether there are more.
 */
export async function readPage(query: ListQuery, source: ListSource): Promise<Page | ListExport> {
  if (query.isExport) return exportList(query, source);

  const { limit } = query;
  const rows = await readRecords(query, source, limit === undefined ? undefined : limit + 1);
  const records = rows.slice(0, limit);
  const last = records.length < rows.length ? records.at(-1) : undefined;
  const total = query.isCounted ? await countRecords(query, source) : undefined;
  const count = query.isCounted
    ? { length: records.length, offset: query.after ? undefined : query.offset, total }
    : undefined;
  const include = await includer(query, source, records);
  const representation = await Representation.ofList(textsOf(records, source.toResponse, include));

  return new Page(representation, { next: last && nextPath(query, last.keys), count });
}

/** The records as JSON text, made one at a time: 1,000 of the audit log have 32 KB each. */
function* textsOf(
  records: readonly JsonRow[],
  toResponse = (json: string) => json,
  include = (json: string) => json,
): Iterable<string> {
  for (const { json } of records) yield include(toResponse(json));
}

/**
 * The intended size of a piece, in characters: an export whose client does not read keeps one
 * piece in memory.
 */
const pieceLength = 128 * 1024;
const firstRecords = 20;
/**
 * Maximum records of a piece. Records of 32 KB, the largest, that follow small ones then make a
 * piece as large as the largest page (`UnsentResponses`).
 */
const maxRecords = 500;

/**
 * Exports a list as CSV: the fields of the view in the header, then every record that the
 * filters match, or as many as `limit` says. Each piece is a page of its own, so that no
 * connection and no transaction stays open while the client receives the pieces before it. A
 * record that exists, and keeps its sorted fields, from the beginning to the end occurs once; a
 * record that is created, deleted or changed meanwhile may occur or not.
 */
async function exportList(query: ListQuery, source: ListSource): Promise<ListExport> {
  const pieces = new ExportPieces(query, source);
  await pieces.begin(); // an error before the first byte becomes a problem
  return new ListExport(query.path.split('/').at(-1) ?? 'list', () => pieces.next());
}

/**
 * Reads the pieces of an export. Keeps neither a piece that it has returned nor the rows of
 * that piece.
 */
class ExportPieces {
  readonly #query: ListQuery;
  readonly #source: ListSource;
  #after: ListQuery['after'];
  /** The number of records that `limit` still allows. */
  #left: number;
  #limit = firstRecords;
  #first: string | undefined;
  #isEnd = false;

  constructor(query: ListQuery, source: ListSource) {
    this.#query = query;
    this.#source = source;
    this.#after = query.after;
    this.#left = query.limit ?? Number.POSITIVE_INFINITY;
  }

  /** Reads the first piece. */
  async begin(): Promise<void> {
    const { hasByteOrderMark, contract } = this.#query;
    const header = (hasByteOrderMark ? byteOrderMark : '') + csvRow(contract.columns);
    this.#first = header + (await this.#read());
  }

  async next(): Promise<string | undefined> {
    const first = this.#first;
    if (first !== undefined) {
      this.#first = undefined;
      return first;
    }
    return this.#isEnd ? undefined : this.#read();
  }

  async #read(): Promise<string> {
    const { columns } = this.#query.contract;
    const { toResponse } = this.#source;
    const limit = Math.min(this.#limit, this.#left);
    const offset = this.#after ? 0 : this.#query.offset;
    const part = { ...this.#query, after: this.#after, offset };
    const records = await readRecords(part, this.#source, limit);

    let text = '';
    for (const { json } of records) {
      const record: Record<string, unknown> = JSON.parse(toResponse?.(json) ?? json);
      text += csvRow(columns.map(column => record[column]));
    }

    this.#left -= records.length;
    this.#isEnd = records.length < limit || this.#left === 0;
    this.#after = records.at(-1)?.keys;
    const recordLength = Math.max(1, text.length / records.length);
    this.#limit = Math.max(1, Math.min(maxRecords, Math.round(pieceLength / recordLength)));
    return text;
  }
}

/**
 * Returns a function that adds to the JSON text of a record what the request includes: `ETag`,
 * the tag that a read of the record has; `UserName`, the name of the user that `UserId` stands
 * for, or null.
 */
async function includer(
  { includes, contract }: ListQuery,
  { userNames }: ListSource,
  records: readonly ListedRecord[],
): Promise<(json: string) => string> {
  if (includes.length === 0) return json => json;
  const ids = includes.includes('user') ? records.flatMap(({ json }) => userIdOf(json) ?? []) : [];
  const names = ids.length > 0 ? await userNames?.([...new Set(ids)]) : undefined;
  return json => {
    const fields = includes.map(include =>
      include === 'etag'
        ? `,"ETag":${JSON.stringify(Representation.ofText(json, contract.volatile).tag)}`
        : `,"UserName":${JSON.stringify(names?.get(userIdOf(json) ?? 0) ?? null)}`,
    );
    return `${json.slice(0, -1)}${fields.join('')}}`;
  };
}

/**
 * The `UserId` of a record. It is the first text of this form, because all fields before it are
 * numbers and times.
 */
function userIdOf(json: string): number | undefined {
  const [, digits] = /"UserId":(\d+)/.exec(json.slice(0, 200)) ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/**
 * Maximum records that are counted. PostgreSQL takes some 20 ms for so many if it reads only an
 * index or the table.
 */
const maxCount = 100_000;
/**
 * Maximum time of a count, in ms: filters that match few of many records read the whole table.
 */
const maxMs = 1_000;

/**
 * Counts the records that the filters of a request match. The counts of a tenant run one after
 * the other, as its large reads do: a tenant that counts without a pause keeps one core of its
 * server busy, not all.
 * @returns undefined when there are more than 100,000, or when the count takes more than a
 *   second
 */
async function countRecords(query: ListQuery, source: ListSource): Promise<number | undefined> {
  const { table, conditions, reads } = source;
  const { conditions: filters, searches, alternatives } = listConditions(query, table);
  const all = [...conditions, ...filters, ...searches, anyOf(alternatives)];
  const select = table.selectCount(all, maxCount + 1);
  const rows = await (reads.readWithin?.(select, maxMs) ?? reads.read(select));
  const count = rows && Number(rows[0]?.count);
  return count === undefined || count > maxCount ? undefined : count;
}
