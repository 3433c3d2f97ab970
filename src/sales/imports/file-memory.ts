import { problem } from '../../lib/problems.ts';

const kibibyte = 1024;
const mebibyte = 1024 * kibibyte;
/** A file is held in blocks, each as large as those before it together, within these bounds. */
const minBlockBytes = 4 * kibibyte;
const maxBlockBytes = 64 * kibibyte;
/**
 * Maximum bytes of files that a process holds: of one tenant, two of the largest files; of all
 * tenants, six.
 */
const maxTenantBytes = 10 * mebibyte;
const maxBytes = 32 * mebibyte;

/**
 * The files of imports that this process holds in memory. Bounded, whatever clients send, and
 * however slowly.
 */
export class FileMemory {
  /** The bytes of each tenant, by its guid. */
  readonly #bytes = new Map<string, number>();
  #total = 0;

  /** Returns an empty file, which must be dropped. */
  fileOf(guid: string): HeldFile {
    return new HeldFile(
      bytes => this.#take(guid, bytes),
      bytes => this.#free(guid, bytes),
    );
  }

  #take(guid: string, bytes: number): void {
    const ofTenant = (this.#bytes.get(guid) ?? 0) + bytes;
    if (ofTenant > maxTenantBytes || this.#total + bytes > maxBytes) {
      throw problem('unavailable', {
        detail: 'Other files are being received. Send the file again later.',
        headers: { 'Retry-After': '5', Connection: 'close' },
      });
    }

    this.#bytes.set(guid, ofTenant);
    this.#total += bytes;
  }

  #free(guid: string, bytes: number): void {
    const left = (this.#bytes.get(guid) ?? 0) - bytes;
    if (left > 0) this.#bytes.set(guid, left);
    else this.#bytes.delete(guid);
    this.#total -= bytes;
  }
}

/**
 * A file that is being received, and then applied. Pieces that arrive are copied into blocks: a
 * client may send it byte by byte, and a piece of one byte takes as much memory as some hundred
 * bytes.
 */
class HeldFile {
  readonly #take: (bytes: number) => void;
  readonly #free: (bytes: number) => void;
  readonly #blocks: Buffer[] = [];
  /** The bytes of all blocks. */
  #bytes = 0;
  /** The bytes of the last block that are not used yet. */
  #unused = 0;

  constructor(take: (bytes: number) => void, free: (bytes: number) => void) {
    this.#take = take;
    this.#free = free;
  }

  /** The bytes that have been received. */
  get pieces(): readonly Buffer[] {
    return this.#blocks.map((block, index) =>
      index === this.#blocks.length - 1 ? block.subarray(0, block.length - this.#unused) : block,
    );
  }

  /** @throws {Problem} `unavailable` when the process holds as much as it may */
  add(piece: Buffer): void {
    for (let rest = piece; rest.length > 0; ) {
      if (this.#unused === 0) this.#addBlock();
      const block = this.#blocks.at(-1)!;
      const copied = rest.copy(block, block.length - this.#unused);
      this.#unused -= copied;
      rest = rest.subarray(copied);
    }
  }

  release(): void {
    this.#free(this.#bytes);
    this.#blocks.length = 0;
    this.#bytes = 0;
    this.#unused = 0;
  }

  #addBlock(): void {
    const bytes = Math.min(maxBlockBytes, Math.max(minBlockBytes, this.#bytes));
    this.#take(bytes);
    this.#blocks.push(Buffer.allocUnsafeSlow(bytes));
    this.#bytes += bytes;
    this.#unused = bytes;
  }
}
