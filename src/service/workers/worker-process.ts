import cluster, { type Worker } from 'node:cluster';
import type { UnreadyReason } from '../../lib/http/server/management.ts';
import { within } from '../../lib/runtime/within.ts';
import type { MetricValues } from '../../lib/seams/metric-values.ts';
import {
  type Reply,
  readMessage,
  type ToPrimary,
  type ToWorker,
  type WorkerMessage,
} from './messages.ts';
import type { ProcessEnd } from './supervision-actions.ts';

interface WorkerEvents {
  /** Called with each message, before anything else. */
  onHeard(): void;
  /** Not called with replies to requests. */
  onMessage(message: WorkerMessage): void;
  /** Called with the metrics that the worker sends last. */
  onLastMetrics(values: MetricValues[]): void;
  onEnded(end: ProcessEnd): void;
  /** Called after the last message of the worker, which may arrive after its end. */
  onClosed(): void;
}

const maxReplyMs = 1_000;
/** The id of a message for which no request waits. */
export const unrequested = 0;

/**
 * A worker process, as its primary process sees it. It has the arguments and the environment of
 * the primary process.
 */
export class WorkerProcess {
  readonly #worker: Worker = cluster.fork();
  readonly #events: WorkerEvents;
  /** The requests that wait for a reply, by id. */
  readonly #waiting = new Map<number, (reply: Reply | undefined) => void>();
  #lastId = unrequested;

  /** Starts the process. */
  constructor(events: WorkerEvents) {
    this.#events = events;
    this.#worker.on('message', (received: unknown) => this.#receive(received));
    // 'exit' follows, also when the process could not be started.
    this.#worker.on('error', () => {});
    this.#worker.on('exit', (code, signal) => {
      events.onEnded({ code, signal });
      for (const resolve of this.#waiting.values()) resolve(undefined);
    });
    this.#worker.on('disconnect', events.onClosed);
  }

  get pid(): number {
    return this.#worker.process.pid ?? 0;
  }

  /** Sends a message; does nothing when the process has ended. */
  send(message: ToWorker): void {
    this.#worker.send(message, () => {}); // an error: the process has ended
  }

  kill(): void {
    this.#worker.process.kill('SIGKILL');
  }

  /** Asks for a message. */
  ping(): void {
    this.send({ type: 'read_ready', id: unrequested });
  }

  /**
   * Resolves to the reason why the worker is not ready; undefined when it is. No response within
   * a second is a reason, too.
   */
  async unreadyReason(): Promise<UnreadyReason | undefined> {
    const reply = await this.#request(id => ({ type: 'read_ready', id }));
    return reply?.type === 'ready' ? reply.reason : 'starting';
  }

  /**
   * Resolves to the metrics of the worker; to undefined when it does not respond within a
   * second.
   */
  async readMetrics(withFleet: boolean): Promise<MetricValues[] | undefined> {
    const reply = await this.#request(id => ({ type: 'read_metrics', id, withFleet }));
    return reply?.type === 'metrics' ? reply.values : undefined;
  }

  #request(message: (id: number) => ToWorker): Promise<Reply | undefined> {
    const id = ++this.#lastId;
    const { promise, resolve } = Promise.withResolvers<Reply | undefined>();
    this.#waiting.set(id, resolve);
    this.send(message(id));

    return within(promise, maxReplyMs)
      .catch(() => undefined)
      .finally(() => this.#waiting.delete(id));
  }

  #receive(received: unknown): void {
    this.#events.onHeard();

    const message = readMessage<ToPrimary>(received);
    if (message?.type === 'metrics' && message.id === unrequested) {
      this.#events.onLastMetrics(message.values);
    } else if (message?.type === 'metrics' || message?.type === 'ready') {
      this.#waiting.get(message.id)?.(message);
    } else if (message) {
      this.#events.onMessage(message);
    }
  }
}

/** Ends all worker processes at once. */
export function killWorkers(): void {
  for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGKILL');
}
