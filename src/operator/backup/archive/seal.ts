import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createZstdCompress, createZstdDecompress } from 'node:zlib';
import { Decrypter, Encrypter } from 'age-encryption';
import { type ArchiveBounds, requireUnpacked, SealedBytes } from './archive-bytes.ts';
import { ArchiveFault } from './archive-fault.ts';

/**
 * The size of the chunks between compression and sealing, in bytes. Each chunk costs some work,
 * whatever its size.
 */
const chunkBytes = 128 * 1024;

/** The first bytes of every file of age, and the beginning of the last line of its header. */
const ageMagic = Buffer.from('age-encryption.org/v1\n');
const ageHeaderEnd = Buffer.from('\n--- ');

/**
 * Maximum bytes of the header of age, which is held in memory: that for 20 recipients has 2 KB,
 * or 32 KB where these are post-quantum ones.
 */
export const maxAgeHeaderBytes = 64 * 1024;

/**
 * Compresses a tar and seals it for the recipients: `age -d -i identity.txt | zstd -d` gives it
 * back.
 * @param recipients of age, at least one
 * @param onTarBytes receives the size of the tar, when all of it is read
 */
export function seal(
  tar: Readable,
  recipients: readonly string[],
  onTarBytes: (bytes: number) => void = () => {},
): Readable {
  async function* sealed(): AsyncGenerator<Uint8Array> {
    // A pipeline would wait for ever for a tar that has ended before.
    if (tar.destroyed) throw new Error('the tar has ended before it was read');

    const zstd = createZstdCompress({ chunkSize: chunkBytes });
    // An error of the tar destroys the compressor, whose reader then throws it.
    const fed = pipeline(tar, zstd).catch(() => {});

    try {
      const encrypter = new Encrypter();
      for (const recipient of recipients) {
        encrypter.addRecipient(recipient);
      }

      yield* (await encrypter.encrypt(
        Readable.toWeb(zstd) as ReadableStream<Uint8Array>,
      )) as AsyncIterable<Uint8Array>;
      onTarBytes(zstd.bytesWritten);
    } finally {
      zstd.destroy();
      tar.destroy();
      await fed;
    }
  }

  return Readable.from(sealed(), { objectMode: false });
}

/**
 * Opens a body that `seal` has made. Returns only bytes that were not changed since they were
 * sealed. Age does not prove who has sealed them.
 * @param identities of age
 * @param bounds of the archive
 * @param sealed counts the bytes that are read
 * @throws {ArchiveFault} when none of them opens it, or a byte was changed, or the end is
 *   missing, or it is larger than its bounds
 * @throws the error of the body, as it is
 */
export async function* unseal(
  body: AsyncIterable<Uint8Array>,
  identities: readonly string[],
  bounds: ArchiveBounds,
  sealed: SealedBytes = new SealedBytes(),
): AsyncGenerator<Buffer> {
  const source = new WatchedSource(body, bounds, sealed);
  const zstd = createZstdDecompress({ chunkSize: chunkBytes });

  try {
    const decrypter = new Decrypter();
    for (const identity of identities) {
      decrypter.addIdentity(identity);
    }
    const opened = await decrypter.decrypt(
      Readable.toWeb(Readable.from(source.chunks())) as ReadableStream<Uint8Array>,
    );
    const fed = pipeline(opened as AsyncIterable<Uint8Array>, zstd).catch(() => {});

    try {
      let unpacked = 0;
      for await (const chunk of zstd) {
        unpacked += chunk.length;
        requireUnpacked(unpacked, bounds);
        yield chunk;
      }
    } finally {
      zstd.destroy();
      await fed;
    }
  } catch (error) {
    if (source.error !== undefined) throw source.error;

    throw toFault(error);
  }
}

/**
 * Passes on the chunks of a source, up to its bounds, and distinguishes an error of the source
 * from the errors that its chunks cause.
 */
class WatchedSource {
  readonly #source: AsyncIterable<Uint8Array>;
  readonly #bounds: ArchiveBounds;
  readonly #sealed: SealedBytes;
  error: unknown;

  constructor(source: AsyncIterable<Uint8Array>, bounds: ArchiveBounds, sealed: SealedBytes) {
    this.#source = source;
    this.#bounds = bounds;
    this.#sealed = sealed;
  }

  async *chunks(): AsyncGenerator<Uint8Array> {
    // Age would read a header without an end into memory, whatever its size.
    let header: Buffer | undefined = Buffer.alloc(0);

    try {
      for await (const chunk of this.#source) {
        this.#count(chunk);
        if (!header) {
          yield chunk;
          continue;
        }

        header = Buffer.concat([header, chunk]);
        if (!hasHeader(header)) continue;
        yield header;
        header = undefined;
      }
      if (header) {
        requireMagic(header);
        yield header;
      }
    } catch (error) {
      this.error ??= error;
      throw error;
    }
  }

  #count(chunk: Uint8Array): void {
    this.#sealed.add(chunk);
    if (this.#sealed.size <= this.#bounds.size) return;

    throw new ArchiveFault('damaged', 'it has more bytes than were recorded, or listed');
  }
}

/**
 * @returns false when the header goes on
 * @throws {ArchiveFault} when it is none of age, or too large
 */
function hasHeader(start: Buffer): boolean {
  if (start.length < ageMagic.length) return false;
  requireMagic(start);

  const end = start.indexOf(ageHeaderEnd);
  if (end >= 0 && end <= maxAgeHeaderBytes) return true;
  if (start.length <= maxAgeHeaderBytes) return false;

  throw new ArchiveFault('damaged', `its header has more than ${maxAgeHeaderBytes} bytes`);
}

function requireMagic(start: Buffer): void {
  if (start.length === 0) throw new ArchiveFault('damaged', 'it is empty');
  if (!start.subarray(0, ageMagic.length).equals(ageMagic)) {
    throw new ArchiveFault('damaged', 'it does not begin as a file of age does');
  }
}

function toFault(error: unknown): ArchiveFault {
  if (error instanceof ArchiveFault) return error;

  const { code, message } = error as NodeJS.ErrnoException;
  if (message === "no identity matched any of the file's recipients") {
    return new ArchiveFault('sealed', 'no identity in BACKUP_IDENTITY_FILE opens it', {
      cause: error,
    });
  }
  if (code?.startsWith('ZSTD_') || code?.startsWith('Z_')) {
    return new ArchiveFault('damaged', 'its compressed data ends too early, or was changed', {
      cause: error,
    });
  }

  return new ArchiveFault('damaged', 'a byte of it was changed, or it ends too early', {
    cause: error,
  });
}
