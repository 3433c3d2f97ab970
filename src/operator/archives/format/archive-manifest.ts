import { z } from 'zod';

const tableContract = z.object({
  name: z.string(),
  columns: z.array(z.string()),
  /** Of the columns. */
  types: z.array(z.string()),
  rows: z.number().int().nonnegative(),
  /** As `TableChecksum.checksum`. */
  checksum: z.string(),
  sequences: z.array(
    z.object({
      column: z.string(),
      name: z.string(),
      /** The last value, and whether the next one comes after it (`setval`). */
      lastValue: z.string(),
      isCalled: z.boolean(),
    }),
  ),
});

export const manifestContract = z.object({
  kind: z.enum(['tenant', 'control']),
  /** The tenant; null for the control database. */
  tenant: z.object({ guid: z.uuid(), slug: z.string(), name: z.string() }).nullable(),
  /** The last migration of the database. */
  schemaVersion: z.string(),
  /** The fingerprint of the schema when it was last compared with the template; null: not known. */
  schemaFingerprint: z.string().nullable(),
  /** The time of the snapshot by the clock of the server, in ISO 8601. */
  snapshotAt: z.string(),
  source: z.object({ server: z.string(), database: z.string(), postgres: z.string() }),
  /** The tables in the order in which they can be filled. */
  tables: z.array(tableContract),
});

/** What an archive contains: the sealed counterpart of the header. */
export type ArchiveManifest = z.output<typeof manifestContract>;
export type ArchivedTable = z.output<typeof tableContract>;

export function countRows({ tables }: ArchiveManifest): number {
  return tables.reduce((sum, { rows }) => sum + rows, 0);
}
