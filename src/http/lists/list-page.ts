import type { Representation } from '../representation.ts';
import { cursorOf } from './list-cursor.ts';
import type { ListQuery } from './list-query.ts';

/** A page of a list, and the path of the next page if there is one. */
export class Page {
  readonly representation: Representation;
  readonly next: string | undefined;

  constructor(representation: Representation, next: string | undefined) {
    this.representation = representation;
    this.next = next;
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
