import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createZstdCompress, createZstdDecompress } from 'node:zlib';
import { Decrypter, Encrypter } from 'age-encryption';
import { ArchiveFault } from './archive-fault.ts';

/**
 * The size of the chunks between compression and sealing, in bytes. Each chunk costs some work,
 * whatever its size.
 */
const chunkBytes = 128 * 1024;

/** The first bytes of every file of age. */
const ageMagic = Buffer.from('age-encryption.org/v1\n');

/**
 * Compresses a tar and seals it for the recipients: `age -d -i identity.txt | zstd -d` gives it
 * back.
 * @param recipients of age, at least one
 */
export function seal(tar: Readable, recipients: readonly string[]): Readable {
  async function* sealed(): AsyncGenerator<Uint8Array> {
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
 * @throws {ArchiveFault} when none of them opens it, or a byte was changed, or the end is
 *   missing
 * @throws the error of the body, as it is
 */
export async function* unseal(
  body: AsyncIterable<Uint8Array>,
  identities: readonly string[],
): AsyncGenerator<Buffer> {
  const source = new WatchedSource(body);
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
      for await (const chunk of zstd) {
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
 * Passes on the chunks of a source, and distinguishes an error of the source from the errors
 * that its chunks cause.
 */
class WatchedSource {
  readonly #source: AsyncIterable<Uint8Array>;
  error: unknown;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source;
  }

  async *chunks(): AsyncGenerator<Uint8Array> {
    let start = Buffer.alloc(0);
    try {
      for await (const chunk of this.#source) {
        if (start.length >= ageMagic.length) {
          yield chunk;
          continue;
        }

        // A file that is not of age may have no end of a line, and age would read all of it
        // into memory.
        start = Buffer.concat([start, chunk]);
        if (start.length < ageMagic.length) continue;
        requireMagic(start);
        yield start;
      }
      requireMagic(start);
    } catch (error) {
      this.error ??= error;
      throw error;
    }
  }
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
