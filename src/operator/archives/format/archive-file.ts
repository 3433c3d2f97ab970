import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createZstdCompress, createZstdDecompress } from 'node:zlib';
import { ArchiveFault } from './archive-fault.ts';
import { type ArchiveHeader, archiveKey, associatedData, encodeHeader, readHeader } from './archive-header.ts';
import { type ArchivedTable, type ArchiveManifest, manifestContract } from './archive-manifest.ts';
import { ByteReader } from './byte-reader.ts';
import { inPieces, openFrames, sealFrames } from './frames.ts';

/** Above this, the length of a part cannot be right. */
const maxPartBytes = 256 * 1024 * 1024;

/** The archive that a file is expected to be. */
export type ExpectedArchive = Pick<ArchiveHeader, 'id' | 'tenant'>;

export interface ArchiveReader {
  readonly manifest: ArchiveManifest;
  /**
   * Returns the tables in their order, each with its rows as `copy` reads them in text format. The rows of a table are
   * read to their end before the next table, and are as many as the manifest says.
   */
  tables(): AsyncGenerator<{ table: ArchivedTable; rows: AsyncIterable<Buffer> }>;
}

/**
 * Reads an archive. Only authenticated bytes are returned, and every byte is checked when `work` has read all tables.
 * @param findKey returns the data key with a fingerprint
 * @throws {ArchiveFault} when the file is not the expected archive, or any of its bytes was changed
 */
export async function readArchive<T>(
  source: AsyncIterable<Buffer>,
  expected: ExpectedArchive,
  findKey: (header: ArchiveHeader) => Buffer,
  work: (archive: ArchiveReader) => Promise<T>,
): Promise<T> {
  const file = new ByteReader(source);
  try {
    const { header, bytes } = await readHeader(file);
    if (header.id !== expected.id || header.tenant !== expected.tenant)
      throw new ArchiveFault('foreign', 'it is another archive, or an archive of another tenant');
    const key = archiveKey(findKey(header), bytes);
    const frames = openFrames(file.remainder(), key, associatedData(bytes), bytes.length);
    const zstd = createZstdDecompress();
    const fed = pipeline(Readable.from(frames, { objectMode: false }), zstd).catch(() => {});
    const payload = new ByteReader(zstd);
    try {
      const manifest = parseManifest(await payload.read(await readLength(payload)), expected);
      return await work({ manifest, tables: () => readTables(payload, manifest) });
    } finally {
      zstd.destroy();
      await fed;
    }
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code?.startsWith('ZSTD_') || code === 'Z_BUF_ERROR')
      throw new ArchiveFault('damaged', 'its compressed data was changed', { cause: error });
    throw error;
  } finally {
    await file.close();
  }
}

/** Reads all rows of an archive. @throws {ArchiveFault} */
export async function checkRows(archive: ArchiveReader): Promise<void> {
  for await (const _ of archive.tables());
}

/** A row ends with a line feed, and a line feed in a value is written as `\n`. */
function countLines(chunk: Buffer): number {
  let count = 0;
  for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, at + 1)) count++;
  return count;
}

function parseManifest(bytes: Buffer, { tenant }: ExpectedArchive): ArchiveManifest {
  const manifest = manifestContract.parse(JSON.parse(bytes.toString()));
  if ((manifest.tenant?.guid ?? null) !== tenant)
    throw new ArchiveFault('foreign', 'its manifest is that of another tenant');
  return manifest;
}

async function* readTables(
  payload: ByteReader,
  manifest: ArchiveManifest,
): AsyncGenerator<{ table: ArchivedTable; rows: AsyncIterable<Buffer> }> {
  for (const table of manifest.tables) {
    const rows = readRows(payload, table);
    yield { table, rows };
    for await (const _ of rows); // what the caller has not read
  }
  await payload.requireEnd();
}

/** @throws {ArchiveFault} at the end, when there are not as many rows as the manifest says */
async function* readRows(payload: ByteReader, { name, rows }: ArchivedTable): AsyncGenerator<Buffer> {
  let count = 0;
  for (let length = await readLength(payload); length > 0; length = await readLength(payload)) {
    const piece = await payload.read(length);
    count += countLines(piece);
    yield piece;
  }
  if (count !== rows) throw new ArchiveFault('wrong_contents', `table ${name} has ${count} rows instead of ${rows}`);
}

async function readLength(payload: ByteReader): Promise<number> {
  const length = (await payload.read(4)).readUInt32BE();
  if (length > maxPartBytes) throw new ArchiveFault('damaged', 'the length of one of its parts was changed');
  return length;
}

/** Text of rows is collected to pieces of this size. */
const pieceBytes = 64 * 1024;

/**
 * Returns the bytes of an archive: the header, then the frames of the compressed payload. Memory does not grow with the
 * size of the tables. `docs/backup-format.md` describes the format.
 * @param readTable returns the rows of a table as `copy` writes them in text format
 */
export async function* writeArchive(
  header: ArchiveHeader,
  dataKey: Buffer,
  manifest: ArchiveManifest,
  readTable: (table: ArchivedTable) => AsyncIterable<Buffer>,
): AsyncGenerator<Buffer> {
  const bytes = encodeHeader(header);
  yield bytes;
  const zstd = createZstdCompress();
  // An error of the payload destroys the compressor, whose reader then throws it.
  const fed = pipeline(Readable.from(payload(manifest, readTable), { objectMode: false }), zstd).catch(() => {});
  try {
    yield* sealFrames(zstd, archiveKey(dataKey, bytes), associatedData(bytes));
  } finally {
    zstd.destroy();
    await fed;
  }
}

/**
 * The manifest, then each table as pieces and an empty piece. Each part begins with its length in 4 bytes.
 */
async function* payload(
  manifest: ArchiveManifest,
  readTable: (table: ArchivedTable) => AsyncIterable<Buffer>,
): AsyncGenerator<Buffer> {
  yield part(Buffer.from(JSON.stringify(manifest)));
  for (const table of manifest.tables) {
    if (table.rows > 0)
      for await (const { bytes } of inPieces(readTable(table), pieceBytes)) if (bytes.length > 0) yield part(bytes);
    yield part(Buffer.alloc(0));
  }
}

function part(bytes: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return Buffer.concat([length, bytes]);
}
