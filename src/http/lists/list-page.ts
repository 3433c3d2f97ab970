import type { Representation } from '../representation.ts';
import { cursorOf } from './list-cursor.ts';
import type { ListQuery } from './list-query.ts';

/**
 * A page of a list, and the path of the next page if there is one. `cursor` is the header `Next-Cursor` of a list that
 * grows at its end: from there, later requests go on.
 */
export class Page {
  readonly representation: Representation;
  readonly next: string | undefined;
  readonly cursor: string | undefined;

  constructor(representation: Representation, next: string | undefined, cursor?: string) {
    this.representation = representation;
    this.next = next;
    this.cursor = cursor;
  }
}

/**
 * Returns the path of the page after a record: that of the request with another cursor.
 * @param values of the sorted fields of the record, as PostgreSQL prints them
 */
export function nextPath({ path, parameters, binding }: ListQuery, values: readonly (string | null)[]): string {
  const next = new URLSearchParams(parameters);
  next.set('after', cursorOf(binding, values));
  return `${path}?${next}`;
}
