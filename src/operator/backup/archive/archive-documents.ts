import { z } from 'zod';
import type { GivenNumbers } from '../../databases/copy/carry-numbers.ts';

/*
 * The two JSON documents of an archive: the header is its first member, the manifest its last.
 * docs/operate/without-us.md describes both.
 */

/** The tenant of an archive, with its names at that time. */
const tenantContract = z.object({
  guid: z.uuid(),
  slug: z.string(),
  name: z.string(),
});

const pageContract = z.object({
  /** The name of a migration: its page is `schema/<name>.sql`. */
  name: z.string().regex(/^\d{4}-[a-z0-9-]+$/),
  /** SHA-256 of the page, in hexadecimal. */
  digest: z.string(),
});

const tableContract = z.object({
  schema: z.string(),
  name: z.string(),
  columns: z.array(z.string()),
  /** The types of the columns, as PostgreSQL names them, without a length or precision. */
  types: z.array(z.string()),
});

/** A table of an archive. */
export type ArchivedTable = z.output<typeof tableContract>;

/**
 * The source of an archive: a tenant's database, the control database, or the export of a
 * tenant's data.
 */
const kindContract = z.enum(['tenant', 'control', 'export']);
export type ArchiveKind = z.output<typeof kindContract>;

/**
 * The subject of an archive, its time and its place: the header and the manifest say the same.
 */
const subject = {
  format: z.literal(1),
  kind: kindContract,
  /** The id of the installation (`installation.id`). */
  installation: z.uuid(),
  /** The tenant; null: the control database. */
  tenant: tenantContract.nullable(),
  /** The name of the object in the target; null: an export. */
  name: z.string().nullable(),
  /** The time in the name, in ISO 8601. */
  time: z.string(),
};

export const headerContract = z.object({
  ...subject,
  /** The recipients of age for which it was sealed; none for an export. */
  recipients: z.array(z.string()),
  schema: z.object({
    /** The last migration. */
    version: z.string(),
    pages: z.array(pageContract),
  }),
  /** The tables in the order in which they can be filled. */
  tables: z.array(tableContract),
});

/** The first member of an archive. */
export type ArchiveHeader = z.output<typeof headerContract>;

const sequenceContract = z.object({
  schema: z.string(),
  name: z.string(),
  table: z.string(),
  column: z.string(),
  /** The last value; `isCalled`: the next value comes after it (`setval`). */
  lastValue: z.string(),
  isCalled: z.boolean(),
});

const contentContract = z.object({
  schema: z.string(),
  name: z.string(),
  rows: z.number().int().nonnegative(),
  /**
   * The `checksum` of `TableChecksum`; null in an export, whose texts are changed for
   * spreadsheets.
   */
  checksum: z.string().nullable(),
  /** The members with its rows, in their order. */
  pieces: z.array(z.string()),
});

const leftOutContract = z.object({ name: z.string(), reason: z.string() });

/** A part of a database that its archive lacks. */
export type LeftOut = z.output<typeof leftOutContract>;

export const manifestContract = z.object({
  ...subject,
  schemaVersion: z.string(),
  /** The SHA-256 of the page of that version, in hexadecimal. */
  schemaDigest: z.string(),
  /**
   * The time of the snapshot by the clock of the server, in ISO 8601, and its number
   * (`pg_current_snapshot`).
   */
  snapshot: z.object({ at: z.string(), id: z.string() }),
  source: z.object({ server: z.string(), database: z.string(), postgres: z.string() }),
  tables: z.array(contentContract),
  sequences: z.array(sequenceContract),
  leftOut: z.array(leftOutContract),
  /** Every other member, in order, with the SHA-256 of its bytes, in hexadecimal. */
  members: z.array(
    z.object({ name: z.string(), bytes: z.number().int().nonnegative(), sha256: z.string() }),
  ),
  /**
   * HMAC-SHA-256 of the bytes of the document without this field, in hexadecimal; an export has
   * none.
   */
  mac: z.string().optional(),
});

/** The last member of an archive. Without it, a file is not an archive. */
export type ArchiveManifest = z.output<typeof manifestContract>;

export function countRows({ tables }: Pick<ArchiveManifest, 'tables'>): number {
  return tables.reduce((sum, { rows }) => sum + rows, 0);
}

/** Returns the last number that each sequence of `public` had given. */
export function givenNumbers({ sequences }: Pick<ArchiveManifest, 'sequences'>): GivenNumbers {
  return new Map(
    sequences
      .filter(({ schema }) => schema === 'public')
      .map(({ table, column, lastValue, isCalled }) => [
        `${table}.${column}`,
        BigInt(lastValue) - (isCalled ? 0n : 1n),
      ]),
  );
}

/**
 * Returns the objects of others that an archive of a tenant lacks. Tables of `public` are ours.
 */
export function foreignLeftOut({
  kind,
  leftOut,
}: Pick<ArchiveManifest, 'kind' | 'leftOut'>): LeftOut[] {
  return kind === 'tenant' ? leftOut.filter(({ name }) => !name.startsWith('table public.')) : [];
}
