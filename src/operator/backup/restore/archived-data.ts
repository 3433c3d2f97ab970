import type pg from 'pg';
import type { EarlierData } from '../../databases/copy/fill-database.ts';
import { fillTables, type StoredTable } from '../../databases/copy/fill-tables.ts';
import { boundsOf } from '../archive/archive-bytes.ts';
import type { ArchivedTable } from '../archive/archive-documents.ts';
import { ArchiveFault } from '../archive/archive-fault.ts';
import {
  type CheckedArchive,
  checkArchive,
  type ExpectedArchive,
  type OpenedPiece,
  type OpenKeys,
  readPieces,
} from '../archive/open-archive.ts';
import { readSchemaPages, requireKnownPages } from '../archive/schema-pages.ts';
import { DamagedObjectError, MissingObjectError, type Target } from '../target/target.ts';
import type { StoredArchive } from './find-archive.ts';

/** An archive of a target, every byte of which was checked. */
export interface OpenedArchive extends CheckedArchive {
  readonly target: Target;
  readonly name: string;
  readonly identities: readonly string[];
}

/**
 * Reads every byte of an archive of a target, and proves that it is the expected one, and that
 * this build makes its schema.
 * @param maxBytes of its tar, where nothing is recorded of it
 * @throws {ArchiveFault} when it cannot be used
 */
export async function openArchive(
  target: Target,
  { name, tenant, size, row }: Pick<StoredArchive, 'name' | 'tenant' | 'size' | 'row'>,
  keys: OpenKeys & Pick<ExpectedArchive, 'installation'>,
  maxBytes?: number,
): Promise<OpenedArchive> {
  const kind = tenant === null ? 'control' : 'tenant';
  const expected: ExpectedArchive = { kind, tenant, name, installation: keys.installation };

  const bounds = boundsOf(row?.bytes ?? null, size, maxBytes);
  const checked = await checkArchive(readObject(target, name), expected, keys, bounds);
  requireKnownPages(await readSchemaPages(kind), checked.header.schema.pages);

  return { ...checked, target, name, identities: keys.identities };
}

/**
 * Reads the object of an archive, in each of the two readings of a restore.
 * @throws {ArchiveFault} when the target has no such object, or finds that it is damaged
 */
async function* readObject(target: Target, name: string): AsyncGenerator<Uint8Array> {
  try {
    yield* await target.read(name);
  } catch (cause) {
    if (cause instanceof MissingObjectError) {
      throw new ArchiveFault('missing', `${target.description} has no such object`, { cause });
    }
    if (cause instanceof DamagedObjectError) {
      throw new ArchiveFault('damaged', cause.message, { cause });
    }
    throw cause;
  }
}

/** Returns the data of an archive, as a restore writes it into a database. */
export function archivedData(archive: OpenedArchive): EarlierData {
  return {
    description: `archive ${archive.name}`,
    schemaVersion: archive.manifest.schemaVersion,
    bytes: databaseBytes(archive.manifest),
    fill: client => loadArchive(client, archive),
  };
}

/** The size of a database without rows, about. */
const emptyBytes = 10_000_000;
/** Rows in a database have headers and are in indexes: they take more than their CSV. */
const rowFactor = 3;

/** Returns the size that a database with the rows of an archive has, about. */
function databaseBytes({ members }: CheckedArchive['manifest']): number {
  const csvBytes = members.reduce((sum, { bytes }) => sum + bytes, 0);
  return emptyBytes + rowFactor * csvBytes;
}

/**
 * Returns the members of an archive whose rows no restore brings back: those of other schemas
 * than `public`.
 */
export function membersNotRestored({ manifest }: CheckedArchive): string[] {
  return manifest.tables
    .filter(({ schema }) => schema !== 'public')
    .flatMap(({ pieces }) => pieces);
}

/**
 * Fills a database with the tables of `public` of an archive, as `fillTables` does.
 * @throws {ArchiveFault} when the tables differ from the manifest, or the object was replaced or
 *   damaged since it was checked
 */
export async function loadArchive(client: pg.Client, archive: OpenedArchive): Promise<boolean> {
  const { target, name, identities } = archive;
  const tables = storedTables(archive);
  const pieces = readPieces(readObject(target, name), identities, archive);
  const contents = groupPieces(pieces, tables);
  const explain = (names: string) =>
    new ArchiveFault('damaged', `restored, these tables differ from its manifest: ${names}`);

  return fillTables(client, tables, contents, explain);
}

/** Returns the tables of `public` with their entries of the manifest. */
function storedTables({ header, manifest }: CheckedArchive): StoredTable[] {
  return header.tables.flatMap(({ schema, name, columns, types }, index) => {
    const { rows = 0, checksum = null } = manifest.tables[index] ?? {};
    if (schema !== 'public') return [];

    const sequences = manifest.sequences.filter(
      sequence => sequence.schema === 'public' && sequence.table === name,
    );
    return [{ name, columns, types, rows, checksum: checksum ?? '', sequences }];
  });
}

/** The rows of a table as CSV, with one header row. */
interface TableContents {
  readonly table: StoredTable;
  readonly rows: AsyncIterable<Buffer>;
  readonly options: string;
}

/**
 * Returns each table with all of its pieces: one `copy` reads them, so that rows may refer to
 * rows of later pieces.
 */
async function* groupPieces(
  pieces: AsyncGenerator<OpenedPiece>,
  tables: readonly StoredTable[],
): AsyncGenerator<TableContents> {
  const byName = new Map(tables.map(table => [table.name, table]));

  try {
    let next = await pieces.next();
    while (!next.done) {
      const archived = next.value.table;
      const table = archived.schema === 'public' ? byName.get(archived.name) : undefined;

      async function* rowsOf(): AsyncGenerator<Buffer> {
        for (let isFirst = true; isOf(next, archived); isFirst = false) {
          yield isFirst ? next.value.csv : withoutHeader(next.value.csv);
          next = await pieces.next();
        }
      }

      if (table) yield { table, rows: rowsOf(), options: '(format csv, header)' };
      while (isOf(next, archived)) {
        next = await pieces.next();
      }
    }
  } finally {
    await pieces.return(undefined);
  }
}

function isOf(
  next: IteratorResult<OpenedPiece, unknown>,
  table: ArchivedTable,
): next is IteratorYieldResult<OpenedPiece> {
  return !next.done && next.value.table === table;
}

const quote = 0x22;
const lineFeed = 0x0a;

/** Returns CSV after its first row, in whose quoted names line feeds end no row. */
function withoutHeader(csv: Buffer): Buffer {
  let isQuoted = false;
  for (let at = 0; at < csv.length; at++) {
    if (csv[at] === quote) isQuoted = !isQuoted;
    if (csv[at] === lineFeed && !isQuoted) return csv.subarray(at + 1);
  }
  return Buffer.alloc(0);
}
