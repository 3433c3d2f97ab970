import type { UnreadyReason } from '../../lib/http/server/management.ts';
import type { MetricValues } from '../../lib/seams/metric-values.ts';

/** Messages of the primary process to a worker. */
export type ToWorker =
  /** Start, with the URL of the control database if it is on the embedded PostgreSQL. */
  | { readonly type: 'start'; readonly databaseUrl?: string | undefined }
  /** Serve for `delayMs` milliseconds, then finish the running requests and end. */
  | { readonly type: 'stop'; readonly delayMs: number }
  /** Leave new connections to the other workers, finish the open ones and end. */
  | { readonly type: 'hand_over' }
  | { readonly type: 'read_ready'; readonly id: number }
  | { readonly type: 'read_metrics'; readonly id: number; readonly withFleet: boolean };

/** Messages of a worker to the primary process. */
export type ToPrimary = WorkerMessage | Reply;

/** Messages that a worker sends by itself. */
export type WorkerMessage =
  /** The worker listens, and is ready. */
  | { readonly type: 'started'; readonly port: number }
  /** The worker cannot start. The text is for the operator. */
  | { readonly type: 'failed'; readonly text: string }
  /**
   * The worker accepts no more connections because of a fault, and ends when its requests have
   * ended.
   */
  | { readonly type: 'leaving' };

/** Replies of a worker to requests, by the id of the request. */
export type Reply =
  /** The answer to a `ready` request, with the reason why the worker is not ready. */
  | { readonly type: 'ready'; readonly id: number; readonly reason?: UnreadyReason | undefined }
  | { readonly type: 'metrics'; readonly id: number; readonly values: MetricValues[] };

/**
 * Returns a message that has a type, and undefined for all others, such as those of `node
 * --watch`. The two sides are of the same build, or of two builds during a restart of the
 * workers: an unknown type is ignored.
 */
export function readMessage<Message extends ToWorker | ToPrimary>(
  message: unknown,
): Message | undefined {
  const isMessage = typeof message === 'object' && message !== null && 'type' in message;
  return isMessage ? (message as Message) : undefined;
}
