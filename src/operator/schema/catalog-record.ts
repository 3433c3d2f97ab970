import type { CatalogCounters } from '../../postgres/catalog-counters.ts';

/** What the control database records of the catalogs of a tenant database: their digest, and the counters that it had. */
export interface CatalogRecord {
  /** As in `CatalogCounters`: a record of another database, or of an earlier run of the server, never matches. */
  readonly source: string;
  /** The counters of all changes before the digest. */
  readonly counters: string;
  /** `catalogDigest`. */
  readonly digest: string;
}

/**
 * Returns the record of the catalogs whose digest was computed after the counters were read. The counters are a sum, and
 * not read after the commit: a change between the commit and the read would be taken for one that the digest contains.
 * @returns undefined if one of the two is not known
 */
export function recordCatalogs(
  counters: CatalogCounters | undefined,
  digest: string | undefined,
): CatalogRecord | undefined {
  if (!counters || digest === undefined) return undefined;
  const { source, counted, own } = counters;
  return { source, counters: counted.map((count, index) => count + (own[index] ?? 0)).join(), digest };
}

/** Returns whether the catalogs are those of the record, but for the changes of this session (`createSchemaComparison`). */
export function provesUnchanged(record: CatalogRecord, { source, isAlone, counted }: CatalogCounters): boolean {
  return isAlone && source === record.source && counted.join() === record.counters;
}
