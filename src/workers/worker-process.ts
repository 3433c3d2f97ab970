import cluster, { type Worker } from 'node:cluster';
import type { UnreadyReason } from '../http/management.ts';
import type { MetricValues } from '../metrics/metrics.ts';
import { readMessage, type ToPrimary, type ToWorker } from './messages.ts';
import type { ProcessEnd } from './supervision-actions.ts';

/** A worker process, as its primary process sees it. */
export interface WorkerProcess {
  readonly pid: number;
  /** Does nothing when the process has ended. */
  send(message: ToWorker): void;
  kill(): void;
  /** Asks for a message. */
  ping(): void;
  /**
   * Resolves to the reason why the worker is not ready; undefined when it is. No response within a second is a reason,
   * too.
   */
  unreadyReason(): Promise<UnreadyReason | undefined>;
  /** Resolves to undefined when the worker does not respond within a second. */
  readMetrics(withFleet: boolean): Promise<MetricValues[] | undefined>;
}

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
export function forkWorker({ onHeard, onMessage, onLastMetrics, onEnded, onClosed }: WorkerEvents): WorkerProcess {
  const worker: Worker = cluster.fork();
  const waiting = new Map<number, (reply?: Reply) => void>();
  let lastId = unrequested;
  const send = (message: ToWorker): void => void worker.send(message, () => {}); // an error: the process has ended
  const request = (message: (id: number) => ToWorker): Promise<Reply | undefined> =>
    new Promise(resolve => {
      const id = ++lastId;
      const end = (reply?: Reply): void => {
        clearTimeout(timer);
        waiting.delete(id);
        resolve(reply);
      };
      const timer = setTimeout(end, maxReplyMs);
      waiting.set(id, end);
      send(message(id));
    });

  worker.on('message', (received: unknown) => {
    onHeard();
    const message = readMessage<ToPrimary>(received);
    if (message?.type === 'metrics' && message.id === unrequested) onLastMetrics(message.values);
    else if (message?.type === 'metrics' || message?.type === 'ready') waiting.get(message.id)?.(message);
    else if (message) onMessage(message);
  });
  worker.on('error', () => {}); // 'exit' follows, also when the process could not be started
  worker.on('exit', (code, signal) => {
    onEnded({ code, signal });
    for (const end of waiting.values()) end();
  });
  worker.on('disconnect', onClosed);
  return {
    pid: worker.process.pid ?? 0,
    send,
    kill: () => void worker.process.kill('SIGKILL'),
    ping: () => send({ type: 'read_ready', id: unrequested }),
    unreadyReason: async () => {
      const reply = await request(id => ({ type: 'read_ready', id }));
      return reply?.type === 'ready' ? reply.reason : 'starting';
    },
    readMetrics: async withFleet => {
      const reply = await request(id => ({ type: 'read_metrics', id, withFleet }));
      return reply?.type === 'metrics' ? reply.values : undefined;
    },
  };
}

/** Ends all worker processes at once. */
export function killWorkers(): void {
  for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGKILL');
}
