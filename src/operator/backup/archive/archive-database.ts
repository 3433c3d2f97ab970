import type { Readable } from 'node:stream';
import type pg from 'pg';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { breakOff } from '../../../lib/postgres/copy-out.ts';
import {
  type RecordedMigrations,
  recordedMigrations,
} from '../../../lib/postgres/migration-names.ts';
import type { ForeignObjects } from '../../databases/copy/foreign-objects.ts';
import { identityTables } from '../../schema/tenant-tables.ts';
import type { ArchiveManifest } from './archive-documents.ts';
import {
  archiveSettings,
  beginArchive,
  type ContentsOptions,
  readContents,
} from './database-contents.ts';
import { pagesOf, type SchemaPage } from './schema-pages.ts';
import {
  type ArchiveSubject,
  UnreadArchiveError,
  type WrittenArchive,
  writeArchive,
} from './write-archive.ts';

/** A database that is archived. */
export interface ArchiveSource {
  /** The URL of the database, with the rights of the operator. */
  readonly url: string;
  /** The name of its server in the control database. */
  readonly server: string;
  /** The migrations of this build for this kind of database (`readSchemaPages`). */
  readonly pages: readonly SchemaPage[];
  /** Returns the objects of others in the connected database. */
  readonly listForeign?: ((client: pg.Client) => Promise<ForeignObjects>) | undefined;
}

/** An archive that was written: its manifest, and the result that its target has returned. */
export interface ArchivedDatabase<T> {
  readonly manifest: ArchiveManifest;
  /** The size of its tar. */
  readonly unpackedBytes: number;
  readonly written: T;
}

/**
 * Archives one database, as it is at one moment. Readers and writers do not wait for it: it only
 * reads, and locks no row.
 * @param macKey the key of its code: the installation's for a tenant, one of the master key for
 *   the control database
 * @param pieceBytes largest piece of a table
 * @param write writes the body to its end: the archive exists when this has returned
 * @throws {OperatorError} when the database is that of another tenant, or has a schema that
 *   this build does not know
 */
export async function archiveDatabase<T>(
  source: ArchiveSource,
  subject: ArchiveSubject,
  macKey: Buffer,
  write: (body: Readable) => Promise<T>,
  pieceBytes?: number,
): Promise<ArchivedDatabase<T>> {
  return withConnection(
    source.url,
    async client => {
      const facts = await beginArchive(client);
      const recorded = await requireTenant(client, subject, facts.source.database);
      const pages = pagesOf(source.pages, recorded, facts.source.database);
      const foreign = await source.listForeign?.(client);
      const contents = await readContents(client, { except: tablesWithout(subject), foreign });
      const plan = {
        ...facts,
        subject,
        server: source.server,
        pages,
        parts: [contents],
        macKey,
        pieceBytes,
      };

      try {
        const archive = writeArchive(plan);
        const [written, manifest] = await writeBody(archive, write);
        return { manifest, unpackedBytes: archive.tarBytes(), written };
      } catch (error) {
        // The server may still be sending a table that is not read any more (`copyOut`).
        breakOff(client);
        throw error;
      }
    },
    { settings: archiveSettings },
  );
}

/**
 * Writes the body of an archive.
 * @throws the error of the end that failed first: an error of the database rejects `finished`
 *   before it ends the body, and an error of `write` is why nobody reads the body
 */
async function writeBody<T>(
  { body, finished }: WrittenArchive,
  write: (body: Readable) => Promise<T>,
): Promise<[T, ArchiveManifest]> {
  const written = write(body);
  const made = finished.catch(async error => {
    if (error instanceof UnreadArchiveError) await written;
    throw error;
  });

  return Promise.all([written, made]);
}

/**
 * Tables of the control database whose rows are of this machine: they are of no use on another
 * one.
 */
export const machineTables = ['processes', 'doctor_reports'];

function tablesWithout({ kind }: ArchiveSubject): ContentsOptions['except'] {
  const ofDatabase = 'it describes the database itself';
  if (kind !== 'control') return new Map([[ofDatabase, identityTables]]);

  return new Map([
    [ofDatabase, ['migrations']],
    ['it describes what runs now', machineTables],
  ]);
}

/**
 * Returns the migrations that a database records.
 * @throws {OperatorError} when it is that of another tenant
 */
async function requireTenant(
  client: pg.Client,
  { tenant }: ArchiveSubject,
  database: string,
): Promise<RecordedMigrations | null> {
  const guid = tenant ? '(select guid from tenant_identity)' : 'null::uuid';
  const { rows } = await client.query<{ recorded: RecordedMigrations | null; guid: string | null }>(
    `select ${recordedMigrations} as recorded, ${guid} as guid`,
  );
  const [found] = rows;
  if (tenant && found?.guid !== tenant.guid) {
    throw new OperatorError(
      `database ${database} belongs to another tenant: run bin/backoffice doctor`,
    );
  }

  return found?.recorded ?? null;
}
