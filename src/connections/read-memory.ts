/** A read whose result is larger than this, in bytes, is large. */
const largeBytes = 512 * 1024;
/** A read that has received more than this, in bytes, lets the event loop run after each further chunk. */
const chunkBytes = 64 * 1024;

/** The connection on which a read receives its result. */
interface ResultSource {
  pause(): unknown;
  resume(): unknown;
}

/** A request, or another unit of work, with at least one large read. */
interface LargeWork {
  readonly tenant: object;
  readonly reads: Set<Read>;
  bytes: number;
}

/**
 * Bounds the memory of the large reads of a process. The size of a result is not known before it arrives, so its bytes
 * are counted while they arrive. A read that has received more than 512 KiB is large. Its connection is paused, and
 * PostgreSQL waits, while
 *
 *   - earlier work of the same tenant has a large read, or
 *   - all large reads together have received `maxBytes`, unless the work of this one came first.
 *
 * A result counts until its work has ended, because the work encodes it. So the results of large reads take at most
 * `maxBytes` and the largest result; every other read takes at most 512 KiB. The work that came first never waits, so
 * each work gets its turn. Reads of the same work do not wait for each other.
 */
export class ReadMemory {
  readonly #maxBytes: number;
  /** By work, in the order of the first large reads. */
  readonly #large = new Map<object, LargeWork>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes that the large reads have received. */
  get bytes(): number {
    return this.#bytes;
  }

  /** True when the work has a large read. */
  isHeldBy(work: object | undefined): boolean {
    return work !== undefined && this.#large.has(work);
  }

  /** Counts bytes that a large read has received. */
  receive(read: Read, bytes: number): void {
    const { tenant } = read;
    const work: LargeWork = this.#large.get(read.work) ?? { tenant, reads: new Set(), bytes: 0 };
    this.#large.set(read.work, work);
    work.reads.add(read);
    work.bytes += bytes;
    this.#bytes += bytes;
  }

  /** True while the read may receive more. */
  mayReceive({ work }: Read): boolean {
    const large = this.#large.get(work);
    return large === undefined || this.#mayContinue(large);
  }

  /** Must be called when work with a large read has ended. */
  end(work: object): void {
    this.#bytes -= this.#large.get(work)?.bytes ?? 0;
    this.#large.delete(work);
    for (const waiting of this.#large.values())
      if (this.#mayContinue(waiting)) for (const { source } of waiting.reads) source?.resume();
  }

  #mayContinue(work: LargeWork): boolean {
    let isFirst = true;
    for (const earlier of this.#large.values()) {
      if (earlier === work) break;
      if (earlier.tenant === work.tenant) return false;
      isFirst = false;
    }
    return isFirst || this.#bytes < this.#maxBytes;
  }
}

/** One read of a tenant database. */
export class Read {
  readonly tenant: object;
  /** The work that holds the result. */
  readonly work: object;
  /** Undefined while the read has no connection. */
  source: ResultSource | undefined;
  readonly #memory: ReadMemory;
  #bytes = 0;

  constructor(memory: ReadMemory, tenant: object, work: object) {
    this.#memory = memory;
    this.tenant = tenant;
    this.work = work;
  }

  get isLarge(): boolean {
    return this.#bytes > largeBytes;
  }

  /**
   * Counts received bytes. Pauses the connection for a turn of the event loop after each chunk but the first, because
   * libuv reads up to 32 chunks of 64 KiB from a socket in a row, and to parse them takes up to 30 ms. A read that
   * must wait for others stays paused.
   */
  receive(bytes: number): void {
    const { isLarge } = this;
    this.#bytes += bytes;
    if (this.isLarge) this.#memory.receive(this, isLarge ? bytes : this.#bytes);
    if (this.#bytes <= chunkBytes) return;
    this.source?.pause();
    setImmediate(() => {
      if (this.#memory.mayReceive(this)) this.source?.resume();
    });
  }
}
