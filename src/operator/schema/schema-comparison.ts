import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import type { ControlDatabase } from '../../control/database.ts';
import { catalogDigest } from '../../postgres/catalog-digest.ts';
import { type CopiedCatalog, catalogStatements } from '../../postgres/catalog-statements.ts';
import { fingerprint, firstDifference, schemaObjects } from '../../postgres/schema-fingerprint.ts';
import { headObjects } from './template.ts';

/**
 * Returns the first difference of a database from the template, as an operator reads it; undefined if there is none.
 */
export type SchemaComparison = (database: pg.Client) => Promise<string | undefined>;

/**
 * Compares tenant databases of one server with its template. Most of them have the same history, and so the same digest
 * of their catalogs. The first of them is compared by its fingerprint; the digest of the others then proves that they
 * have that fingerprint, at a third of the cost (`catalogDigest`).
 * @param head the fingerprint of the template
 */
export function createSchemaComparison(
  control: ControlDatabase,
  server: Pick<Server, 'id'>,
  head: string,
): SchemaComparison {
  let catalogs: readonly CopiedCatalog[] | undefined;
  const provedDigests = new Set<string>();
  return async database => {
    catalogs ??= await catalogStatements(database);
    const digest = await catalogDigest(database, catalogs);
    if (digest !== undefined && provedDigests.has(digest)) return undefined;
    if ((await fingerprint(database)) !== head)
      return (
        firstDifference(await schemaObjects(database), await headObjects(control, server)) ??
        'the fingerprint of the template is not known'
      );
    // Equal digests before and after prove that the fingerprint belongs to them: nobody changed the schema meanwhile.
    if (digest !== undefined && (await catalogDigest(database, catalogs)) === digest) provedDigests.add(digest);
    return undefined;
  };
}
