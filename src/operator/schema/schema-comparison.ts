import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import {
  type Difference,
  differencesOf,
  fingerprint,
  schemaObjects,
} from '../../lib/postgres/schema-fingerprint.ts';
import { headObjects, objectsAt } from './template.ts';

/**
 * Returns the differences of a database from the template; none if their fingerprints are
 * equal.
 */
export type SchemaComparison = (database: pg.Client) => Promise<Difference[]>;

/**
 * Compares tenant databases of one server with its template.
 * @param head the fingerprint of the template
 */
export function createSchemaComparison(
  control: Installation['control'],
  server: Server,
  head: string,
): SchemaComparison {
  return async database => {
    if ((await fingerprint(database)) === head) return [];

    return differencesOf(await schemaObjects(database), await headObjects(control, server));
  };
}

/**
 * Returns the differences of a database at an earlier version from the schema of that version;
 * undefined when that schema is not known.
 */
export type EarlierComparison = (
  database: pg.Client,
  version: string,
) => Promise<Difference[] | undefined>;

/**
 * Compares tenant databases of one server with the template of the build that their version is
 * of, if it had one.
 */
export function createEarlierComparison(
  control: Installation['control'],
  server: Server,
): EarlierComparison {
  return async (database, version) => {
    const expected = await objectsAt(control, server, version);
    return expected && differencesOf(await schemaObjects(database), expected);
  };
}
