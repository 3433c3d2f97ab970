import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import {
  type Difference,
  differencesOf,
  differenceText,
  fingerprint,
  schemaObjects,
} from '../../postgres/schema-fingerprint.ts';
import { headObjects } from './template.ts';

/** Returns the differences of a database from the template; none if their fingerprints are equal. */
export type SchemaComparison = (database: pg.Client) => Promise<Difference[]>;

/**
 * Compares tenant databases of one server with its template.
 * @param head the fingerprint of the template
 */
export function createSchemaComparison(
  control: Installation['control'],
  server: Pick<Server, 'id'>,
  head: string,
): SchemaComparison {
  return async database => {
    if ((await fingerprint(database)) === head) return [];

    return differencesOf(await schemaObjects(database), await headObjects(control, server));
  };
}

/** Describes the first difference as an operator reads it; undefined if there is none. */
export function firstDifferenceText([first]: readonly Difference[]): string | undefined {
  return first && differenceText(first);
}
