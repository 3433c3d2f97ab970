import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createZstdCompress } from 'node:zlib';
import { type ArchiveHeader, archiveKey, associatedData, encodeHeader } from './archive-header.ts';
import type { ArchivedTable, ArchiveManifest } from './archive-manifest.ts';
import { inPieces, sealFrames } from './frames.ts';

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
