import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { ArchiveFault } from './archive-fault.ts';

/** The bytes of an archive that was written, or read to its end. */
export interface ArchiveBytes {
  /** The number of sealed bytes. */
  readonly size: number;
  /** SHA-256 of the sealed bytes, in hexadecimal. */
  readonly sha256: string;
  /** The size of its tar. */
  readonly unpackedBytes: number;
}

/**
 * The bounds of an archive, which hold before its writer is known: whoever can write to the
 * target can seal anything for the recipients, which are no secret.
 */
export interface ArchiveBounds {
  /** Maximum sealed bytes. */
  readonly size: number;
  /** Maximum bytes of its tar. */
  readonly unpackedBytes: number;
  /** The recorded SHA-256 of the sealed bytes; null: none is recorded. */
  readonly sha256: string | null;
}

/**
 * The size of the tar, in times of the sealed bytes, up to which an archive is read of which
 * nothing is recorded. Archives of tenants have 3 to 20 times.
 */
const maxRatio = 200;

/**
 * Returns the bounds of an object.
 * @param recorded the bytes of its row; null: nothing is recorded
 * @param size of the object, as the target lists it
 * @param maxBytes of its tar, as the operator allows where nothing is recorded
 */
export function boundsOf(
  recorded: ArchiveBytes | null,
  size: number,
  maxBytes: number | undefined,
): ArchiveBounds {
  return recorded ?? { size, unpackedBytes: maxBytes ?? size * maxRatio, sha256: null };
}

/** @throws {ArchiveFault} when a tar is larger than its bounds */
export function requireUnpacked(bytes: number, { unpackedBytes, sha256 }: ArchiveBounds): void {
  if (bytes <= unpackedBytes) return;

  throw new ArchiveFault(
    'damaged',
    sha256 === null
      ? `it unpacks to more than ${unpackedBytes} bytes, and nothing is recorded of it. If you know where it comes from: --max-bytes <number>`
      : 'it unpacks to more bytes than were written',
  );
}

/** Counts and hashes sealed bytes. */
export class SealedBytes {
  readonly #hash = createHash('sha256');
  #size = 0;

  add(chunk: Uint8Array): void {
    this.#size += chunk.length;
    this.#hash.update(chunk);
  }

  get size(): number {
    return this.#size;
  }

  /** Ends the hash. */
  end(): Pick<ArchiveBytes, 'size' | 'sha256'> {
    return { size: this.#size, sha256: this.#hash.digest('hex') };
  }
}

/** Counts and hashes the sealed bytes of an archive on their way to a target. */
export function countSealed(source: Readable, sealed: SealedBytes): Readable {
  async function* counted(): AsyncGenerator<Buffer> {
    for await (const chunk of source) {
      sealed.add(chunk);
      yield chunk;
    }
  }

  return Readable.from(counted(), { objectMode: false });
}
