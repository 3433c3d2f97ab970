import { isDeepStrictEqual } from 'node:util';
import type pg from 'pg';
import type { ControlDatabase } from '../../control/database.ts';
import type { Server } from '../../control/fleet-entities.ts';
import { readCatalogCounters } from '../../postgres/catalog-counters.ts';
import { catalogDigest } from '../../postgres/catalog-digest.ts';
import { type CopiedCatalog, catalogStatements } from '../../postgres/catalog-statements.ts';
import { fingerprint, firstDifference, schemaObjects } from '../../postgres/schema-fingerprint.ts';
import { type CatalogRecord, provesUnchanged, recordCatalogs } from './catalog-record.ts';
import { headObjects } from './template-fingerprint.ts';

/** A change of the schema of the connected database, in the transaction in progress. */
interface ComparedChange {
  /** What is recorded of the catalogs before the change. */
  readonly record: CatalogRecord | null;
  /** The key of its statements (the names of its migrations); undefined if what they make may depend on rows. */
  readonly key: string | undefined;
}

interface ComparisonResult {
  /** The first difference, as an operator reads it; undefined if there is none. */
  difference?: string | undefined;
  /** What to record when the transaction is committed; undefined if there is nothing that would prove something. */
  record?: CatalogRecord | undefined;
  /** True if the database was not read, because its record proves that there is no difference. */
  isProved: boolean;
}

/** Compares tenant databases of one server with its template. */
export interface SchemaComparison {
  /** Returns the first difference of the connected database, as an operator reads it; undefined if there is none. */
  difference(database: pg.Client): Promise<string | undefined>;
  /** Compares the connected database after a change, and before its commit. */
  compare(database: pg.Client, change: ComparedChange): Promise<ComparisonResult>;
  /** Returns what to record of the catalogs when the transaction is committed, without a comparison. */
  record(database: pg.Client): Promise<CatalogRecord | undefined>;
}

/** What a change has made of databases with the same digest, as seen in one that was compared. */
interface ProvedChange {
  /** The rows of the catalogs that the change has written. */
  own: string;
  /** The digest afterwards. */
  digest: string;
}

/**
 * Most tenants of a server have the same history, and so the same digest of their catalogs. The first of them is
 * compared by its fingerprint; the digest of the others then proves that they have that fingerprint, at a third of the
 * cost (`catalogDigest`).
 *
 * Of a database whose catalogs were compared before, not even the digest is computed. Invariants, each with the
 * assumption that it depends on:
 *
 *   I1 (counting) A committed change of a row of a catalog raises a counter of that catalog. Its session adds it to the
 *      counters after the commit, but before it stops being counted as a session of the database.
 *      Assumes: `track_counts` is on (`readCatalogCounters`), and the changes of rows in place, which are not counted,
 *      change no column that the digest contains: they set statistics and `indcheckxmin`. As for the write monitor, only
 *      a superuser can hide a change, by turning `track_counts` off, in a session or for a role.
 *
 *   I2 (order) The number of sessions is read before the counters.
 *
 *   I3 (source) While the source is the same, no counter of the database decreases.
 *      Assumes: a reset changes `stats_reset` of the database; a crash, which loses the counters, changes that of
 *      `pg_stat_bgwriter`; and a start of the server changes `pg_conf_load_time()`, as does each load of its settings.
 *      The path of `pg_class` contains the OID of the database, which another database under its name does not have.
 *
 *   I4 (record) A record contains the digest of the catalogs, and no more than the changes that the digest contains:
 *      those counted before the digest was computed, and those of the session's own transaction, which are counted also
 *      if it is rolled back.
 *      Assumes: each statement sees what was committed before it (`read committed`), and the session has reported its
 *      earlier changes before the transaction (`changeSchema`).
 *
 *   I5 (repetition) Of databases with the same digest, on the same server and with the same settings, statements that do
 *      not depend on rows (`repeatableSteps`) make databases with the same digest, if they write the same number of rows of
 *      each catalog.
 *      Assumes: the digest contains all that decides what these statements make: the objects in `public`, all functions
 *      and types, the names and privileges of schemas, default privileges, event triggers, casts and operators; that
 *      nobody has changed PostgreSQL's own rows of the catalogs, or has exchanged the names of roles between two runs.
 *      What the digest does not contain, such as a table that inherits, changes the number of rows that are written; who
 *      owns a sequence matters only to statements that drop a table or a column, which do not count as repeatable.
 *
 * Proof that a database D needs no comparison, if (a) its source and its counters are those of its record, (b) it had no
 * other session, and (c) the same change of a database E, whose catalogs were proved by its own record to have the same
 * digest before, wrote the same numbers of rows, and E was then compared and had no difference:
 *
 *   1. Suppose that somebody else has changed the catalogs of D between the digest of its record and the moment when (b)
 *      was read. By (b), I1 and I2, the counters contain this change. By I4, the record does not. By I3, the counters are
 *      greater than those of the record, which contradicts (a).
 *   2. By 1, D had the digest of its record before the change, as E did. By (c) and I5, D has the digest of E after the
 *      change, and so its fingerprint, which is that of the template.
 *
 * A change by somebody else after (b) is not noticed, as is one after a comparison. But the new record of D does not
 * contain it: the next run compares D.
 *
 * A database in use has other sessions, and is compared.
 * @param head the fingerprint of the template
 */
export function createSchemaComparison(
  control: ControlDatabase,
  server: Pick<Server, 'id'>,
  head: string | undefined,
): SchemaComparison {
  let catalogs: readonly CopiedCatalog[] | undefined;
  const provedDigests = new Set<string>();
  const provedChanges = new Map<string, ProvedChange>();

  const digestOf = async (database: pg.Client): Promise<string | undefined> => {
    catalogs ??= await catalogStatements(database);
    return catalogDigest(database, catalogs);
  };
  /** @returns the first difference; without one the digest, unless the database has none */
  const compareObjects = async (database: pg.Client): Promise<{ difference?: string; digest?: string | undefined }> => {
    const digest = await digestOf(database);
    if (digest !== undefined && provedDigests.has(digest)) return { digest };
    if ((await fingerprint(database)) !== head) {
      const difference = firstDifference(await schemaObjects(database), await headObjects(control, server));
      return { difference: difference ?? 'the fingerprint of the template is not known' };
    }
    // Equal digests before and after prove that the fingerprint belongs to them: nobody changed the schema meanwhile.
    if (digest === undefined || (await digestOf(database)) !== digest) return {};
    provedDigests.add(digest);
    return { digest };
  };
  return {
    difference: async database => (await compareObjects(database)).difference,
    compare: async (database, { record, key }) => {
      const reading = readCatalogCounters(database);
      if (!record || key === undefined) {
        // Sent together, and in this order, so that the record contains no later change (I4).
        const [counters, { difference, digest }] = await Promise.all([reading, compareObjects(database)]);
        return { difference, record: recordCatalogs(counters, digest), isProved: false };
      }
      const counters = await reading;
      const isUnchanged = counters !== undefined && provesUnchanged(record, counters);
      const change = isUnchanged ? JSON.stringify([record.digest, key, counters.settings]) : '';
      const proved = provedChanges.get(change);
      if (isUnchanged && proved && proved.own === counters.own.join())
        return { record: recordCatalogs(counters, proved.digest), isProved: true };
      const { difference, digest } = await compareObjects(database);
      // Still unchanged: so the digest is of what the change has made, and of nothing else.
      if (isUnchanged && digest !== undefined && isDeepStrictEqual(await readCatalogCounters(database), counters))
        provedChanges.set(change, { own: counters.own.join(), digest });
      return { difference, record: recordCatalogs(counters, digest), isProved: false };
    },
    record: async database => {
      const [counters, digest] = await Promise.all([readCatalogCounters(database), digestOf(database)]);
      return recordCatalogs(counters, digest);
    },
  };
}
