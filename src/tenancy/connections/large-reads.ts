import type { Deadline } from '../../lib/runtime/deadline.ts';

/**
 * Large reads of a process that receive and encode their results at the same time, over all
 * tenants.
 */
const maxOfProcess = 8;
/**
 * A read that has received nothing for so long, in ms, gives its turn back, because it takes no
 * memory yet.
 */
const maxSilenceMs = 250;

type EndTurn = () => void;

/** Gives turns in the order of the requests for them, at most `max` at the same time. */
export class Turns {
  readonly #max: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(max = maxOfProcess) {
    this.#max = max;
  }

  get running(): number {
    return this.#running;
  }

  /**
   * Waits for a turn.
   * @returns a function that ends it; a second call does nothing
   */
  async begin(): Promise<EndTurn> {
    if (this.#running < this.#max) this.#running++;
    else await new Promise<void>(resolve => this.#waiting.push(resolve));

    let hasEnded = false;
    return () => {
      if (hasEnded) return;
      hasEnded = true;
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running--;
    };
  }
}

/** The receiver of the bytes of a result. */
interface Receiver {
  readonly bytesReceived: number;
}

/**
 * Bounds the memory of large results, and the load of one tenant on its server: of the reads
 * that may return or sort many records (`Statement.isHeavy`), a tenant has one at a time, and a
 * process eight. A list of 10 MB takes PostgreSQL and this process some 0.4 s and 30 MB of
 * memory. A turn ends with the work that reads, which encodes the result; `UnsentResponses`
 * bounds the responses that wait to be sent. Other reads do not wait.
 */
export class LargeReads {
  readonly #ofProcess: Turns;
  readonly #ofTenant = new Turns(1);
  /** Work with a turn: its further reads must not wait for its own end. */
  readonly #holders = new WeakSet<Deadline>();

  /** @param ofProcess shared by all tenants */
  constructor(ofProcess: Turns) {
    this.#ofProcess = ofProcess;
  }

  /**
   * Runs a large read in the turn of its tenant. It waits for the turn without a connection.
   * @param read calls `receive` on each connection that it tries
   * @param work the deadline of the work that encodes the result; without it, the turn ends
   *   with the read
   */
  async run<T>(read: (receive: LargeReads['receive']) => Promise<T>, work?: Deadline): Promise<T> {
    if (work && this.#holders.has(work)) return read((_, query) => query());
    if (work) this.#holders.add(work);

    const end = await this.#ofTenant.begin();
    work?.onEnd(end);
    try {
      return await read((receiver, query) => this.receive(receiver, query, work));
    } finally {
      if (!work) end();
    }
  }

  /** Runs the query of a large read on its connection, in one of the turns of the process. */
  async receive<T>(receiver: Receiver, query: () => Promise<T>, work?: Deadline): Promise<T> {
    const end = await this.#ofProcess.begin();
    work?.onEnd(end);

    const before = receiver.bytesReceived;
    const timer = setTimeout(() => {
      if (receiver.bytesReceived === before) end();
    }, maxSilenceMs);
    try {
      return await query();
    } finally {
      clearTimeout(timer);
      if (!work) end();
    }
  }
}
