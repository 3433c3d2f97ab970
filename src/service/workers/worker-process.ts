import cluster, { type Worker } from 'node:cluster';
import type { UnreadyReason } from '../../lib/http/management.ts';
import { within } from '../../lib/runtime/within.ts';
import type { MetricValues } from '../metrics/metrics.ts';
import { readMessage, type ToPrimary, type ToWorker } from './messages.ts';
import type { ProcessEnd } from './supervision-actions.ts';

/** A worker process, as its primary process sees it. */
export type WorkerProcess = ReturnType<typeof forkWorker>;

type Reply = Extract<ToPrimary, { type: 'ready' | 'metrics' }>;

interface WorkerEvents {
  /** Called with each message, before anything else. */
  onHeard(): void;
  /** Not called with replies to requests. */
  onMessage(message: Exclude<ToPrimary, Reply>): void;
  /** Called with the metrics that the worker sends last. */
  onLastMetrics(values: MetricValues[]): void;
  onEnded(end: ProcessEnd): void;
  /** Called after the last message of the worker, which may arrive after its end. */
  onClosed(): void;
}

const maxReplyMs = 1_000;
/** The id of a message for which no request waits. */
export const unrequested = 0;

/** Starts a worker process with the arguments and the environment of this process. */
export function forkWorker({ onHeard, onMessage, onLastMetrics, onEnded, onClosed }: WorkerEvents) {
  const worker: Worker = cluster.fork();
  const waiting = new Map<number, (reply: Reply | undefined) => void>();
  let lastId = unrequested;
  // an error: the process has ended
  const send = (message: ToWorker): void => void worker.send(message, () => {});
  const request = (message: (id: number) => ToWorker): Promise<Reply | undefined> => {
    const id = ++lastId;
    const { promise, resolve } = Promise.withResolvers<Reply | undefined>();
    waiting.set(id, resolve);
    send(message(id));
    return within(promise, maxReplyMs)
      .catch(() => undefined)
      .finally(() => waiting.delete(id));
  };

  worker.on('message', (received: unknown) => {
    onHeard();
    const message = readMessage<ToPrimary>(received);
    if (message?.type === 'metrics' && message.id === unrequested) {
      onLastMetrics(message.values);
    } else if (message?.type === 'metrics' || message?.type === 'ready') {
      waiting.get(message.id)?.(message);
    } else if (message) {
      onMessage(message);
    }
  });
  worker.on('error', () => {}); // 'exit' follows, also when the process could not be started
  worker.on('exit', (code, signal) => {
    onEnded({ code, signal });
    for (const resolve of waiting.values()) resolve(undefined);
  });
  worker.on('disconnect', onClosed);
  return {
    pid: worker.process.pid ?? 0,
    /** Does nothing when the process has ended. */
    send,
    kill: (): void => void worker.process.kill('SIGKILL'),
    /** Asks for a message. */
    ping: () => send({ type: 'read_ready', id: unrequested }),
    /**
     * Resolves to the reason why the worker is not ready; undefined when it is. No response
     * within a second is a reason, too.
     */
    unreadyReason: async (): Promise<UnreadyReason | undefined> => {
      const reply = await request(id => ({ type: 'read_ready', id }));
      return reply?.type === 'ready' ? reply.reason : 'starting';
    },
    /** Resolves to undefined when the worker does not respond within a second. */
    readMetrics: async (withFleet: boolean): Promise<MetricValues[] | undefined> => {
      const reply = await request(id => ({ type: 'read_metrics', id, withFleet }));
      return reply?.type === 'metrics' ? reply.values : undefined;
    },
  };
}

/** Ends all worker processes at once. */
export function killWorkers(): void {
  for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGKILL');
}
