import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import type { ControlDatabase } from '../../control/database.ts';
import { fingerprint, firstDifference, schemaObjects } from '../../postgres/schema-fingerprint.ts';
import { headObjects } from './template.ts';

/**
 * Returns the first difference of a database from the template, as an operator reads it; undefined if there is none.
 */
export type SchemaComparison = (database: pg.Client) => Promise<string | undefined>;

/**
 * Compares tenant databases of one server with its template.
 * @param head the fingerprint of the template
 */
export function createSchemaComparison(
  control: ControlDatabase,
  server: Pick<Server, 'id'>,
  head: string,
): SchemaComparison {
  return async database => {
    if ((await fingerprint(database)) === head) return undefined;
    return (
      firstDifference(await schemaObjects(database), await headObjects(control, server)) ??
      'the fingerprint of the template is not known'
    );
  };
}
