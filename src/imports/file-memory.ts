import { problem } from '../errors.ts';

/** Bytes of the files of one tenant, and of all tenants, that a process holds: two of the largest, and six. */
const maxTenantBytes = 10 * 1024 * 1024;
const maxBytes = 32 * 1024 * 1024;

/** The files of imports that this process holds in memory. Bounded, whatever clients send, and however slowly. */
export class FileMemory {
  /** By the guid of the tenant. */
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
    if (ofTenant > maxTenantBytes || this.#total + bytes > maxBytes)
      throw problem('unavailable', {
        detail: 'Other files are being received. Send the file again later.',
        headers: { 'Retry-After': '5', Connection: 'close' },
      });

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

/** A file that is being received, and then applied. */
class HeldFile {
  readonly pieces: Buffer[] = [];
  readonly #take: (bytes: number) => void;
  readonly #free: (bytes: number) => void;
  #bytes = 0;

  constructor(take: (bytes: number) => void, free: (bytes: number) => void) {
    this.#take = take;
    this.#free = free;
  }

  /** @throws {Problem} `unavailable` when the process holds as much as it may */
  add(piece: Buffer): void {
    this.#take(piece.length);
    this.#bytes += piece.length;
    this.pieces.push(piece);
  }

  drop(): void {
    this.#free(this.#bytes);
    this.#bytes = 0;
    this.pieces.length = 0;
  }
}
