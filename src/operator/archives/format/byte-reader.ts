import { ArchiveFault } from './archive-fault.ts';

/** Reads a stream of bytes in pieces of given lengths. Holds one chunk of the stream, and the piece that is read. */
export class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** @throws {ArchiveFault} when the stream ends before */
  async read(length: number): Promise<Buffer> {
    const chunks = [this.#rest];
    let missing = length - this.#rest.length;
    while (missing > 0) {
      const { value, done } = await this.#source.next();
      if (done) throw new ArchiveFault('truncated', 'it ends too early');
      chunks.push(value);
      missing -= value.length;
    }
    const bytes = chunks.length > 1 ? Buffer.concat(chunks) : this.#rest;
    this.#rest = bytes.subarray(length);
    return bytes.subarray(0, length);
  }

  /** Returns what is left of the stream. */
  async *remainder(): AsyncGenerator<Buffer> {
    if (this.#rest.length > 0) yield this.#rest;
    this.#rest = Buffer.alloc(0);
    for (;;) {
      const { value, done } = await this.#source.next();
      if (done) return;
      yield value;
    }
  }

  /** @throws {ArchiveFault} when a byte is left */
  async requireEnd(): Promise<void> {
    for await (const chunk of this.remainder())
      if (chunk.length > 0) throw new ArchiveFault('wrong_contents', 'it goes on after its last table');
  }

  /** Releases the stream. */
  async close(): Promise<void> {
    await this.#source.return?.();
  }
}
