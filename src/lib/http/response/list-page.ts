import { cursorOf } from '../request/list-parameters/list-cursor.ts';
import type { ListQuery } from '../request/list-parameters/list-query.ts';
import type { Representation } from './representation.ts';

interface PageOptions {
  /** The path of the next page, if there is one. */
  next: string | undefined;
  /** The number of records of a list that is counted. */
  count?: PageCount | undefined;
  /**
   * The place after the page of a list that grows at its end, from where later requests go on.
   */
  cursor?: string;
}

export interface PageCount {
  /** The number of records in the page. */
  readonly length: number;
  /**
   * The number of records before the page; undefined after a cursor: the place of its records
   * in the list is then not known.
   */
  readonly offset: number | undefined;
  /**
   * The number of records that the filters match; undefined if it is too large to be counted.
   */
  readonly total: number | undefined;
}

/** A page of a list. */
export class Page {
  readonly representation: Representation;
  readonly next: string | undefined;
  readonly count: PageCount | undefined;
  readonly cursor: string | undefined;

  constructor(representation: Representation, { next, count, cursor }: PageOptions) {
    this.representation = representation;
    this.next = next;
    this.count = count;
    this.cursor = cursor;
  }
}

/**
 * Returns the value of `Content-Range` (RFC 9110 §14.4): the places of the records, or `*` for
 * a page without records or after a cursor; then the total, or `*` if it is not known, as in
 * `items 0-19/57`. Undefined if neither is known.
 */
export function contentRange({ length, offset, total }: PageCount): string | undefined {
  if (offset === undefined || length === 0) {
    return total === undefined ? undefined : `items */${Math.max(total, length)}`;
  }

  const end = offset + length;
  return `items ${offset}-${end - 1}/${total === undefined ? '*' : Math.max(total, end)}`;
}

/**
 * Returns the path of the page after a record: that of the request with another cursor, which
 * also replaces an offset.
 * @param values of the sorted fields of the record, as PostgreSQL prints them
 */
export function nextPath(
  { path, parameters, binding }: ListQuery,
  values: readonly (string | null)[],
): string {
  const next = new URLSearchParams(parameters);
  next.delete('offset');
  next.set('after', cursorOf(binding, values));
  return `${path}?${next}`;
}
