import type { Logger } from 'pino';
import type { UnreadyReason } from '../../lib/http/management.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { WorkerMetrics } from '../metrics/worker-metrics.ts';
import { logReport } from './log-report.ts';
import { Pings } from './pings.ts';
import { Supervision } from './supervision.ts';
import type { WorkerAction } from './supervision-actions.ts';
import { forkWorker, killWorkers, type WorkerProcess } from './worker-process.ts';

/** The worker processes of this process. */
export interface Workers {
  /** The port that the workers listen on. */
  readonly port: number;
  readonly serving: number;
  /**
   * Resolves to why no worker is ready; undefined while at least one is. One that hangs is
   * replaced.
   */
  unreadyReason(): Promise<UnreadyReason | undefined>;
  readonly metrics: { render(): Promise<string>; readonly contentType: string };
  /** Replaces all workers, one after the other. */
  restart(): void;
  /**
   * Asks all workers to end.
   * @param isFault makes the exit code 1
   */
  stop(delayMs: number, isFault: boolean): void;
  /** Ends all workers at once. */
  kill(): void;
  /** Resolves with the exit code when all workers have ended. */
  readonly ended: Promise<0 | 1>;
}

const pingMs = 1_000;

interface WorkerOptions {
  processes: number;
  /**
   * The URL of the embedded control database; undefined if it is configured, so that workers
   * know it.
   */
  databaseUrl: string | undefined;
  log: Logger;
}

/**
 * Starts workers, and keeps them running. Resolves when all of them serve requests.
 * @throws {OperatorError} with the text of the first one that cannot start; none is left then
 */
export function startWorkers({ processes, databaseUrl, log }: WorkerOptions): Promise<Workers> {
  const supervision = new Supervision(processes);
  const running = new Map<number, WorkerProcess>();
  const pings = new Pings();

  const serving = () => supervision.serving.flatMap(number => running.get(number) ?? []);
  const metrics = new WorkerMetrics(() => ({
    serving: supervision.serving.length,
    died: supervision.died,
  }));

  const started = Promise.withResolvers<Workers>();
  const ended = Promise.withResolvers<0 | 1>();
  let port = 0;
  let stopDelayMs = 0;
  let timer: NodeJS.Timeout | undefined;

  const fork = (number: number): void => {
    const worker = forkWorker({
      onHeard: () => pings.hear(number),
      onMessage: message => {
        if (message.type === 'started') {
          port = message.port;
          run(supervision.onStarted(number, performance.now()));
        } else if (message.type === 'failed') {
          supervision.onFailed(number, message.text);
        } else if (message.type === 'leaving') {
          run(supervision.onLeaving(number, performance.now()));
        }
      },
      onLastMetrics: values => metrics.record(number, values),
      onEnded: end => {
        run(supervision.onEnded(number, end, performance.now()));
        running.delete(number);
      },
      onClosed: () => metrics.end(number),
    });

    running.set(number, worker);
    worker.send({ type: 'start', databaseUrl });
  };

  const perform = (action: WorkerAction): void => {
    switch (action.kind) {
      case 'fork':
        fork(action.worker);
        break;
      case 'hand_over':
        running.get(action.worker)?.send({ type: 'hand_over' });
        break;
      case 'stop':
        running.get(action.worker)?.send({ type: 'stop', delayMs: stopDelayMs });
        break;
      case 'kill':
        running.get(action.worker)?.kill();
        break;
      case 'report':
        logReport(log, action.report, number => running.get(number)?.pid);
        break;
      case 'serving':
        started.resolve(workers);
        break;
      case 'ended':
        if (action.failure !== undefined) started.reject(new OperatorError(action.failure));
        ended.resolve(action.exitCode);
        break;
    }
  };

  const run = (actions: WorkerAction[]): void => {
    for (const action of actions) perform(action);

    clearTimeout(timer);
    const { nextAt } = supervision;
    if (nextAt === Number.POSITIVE_INFINITY) return;
    const delayMs = Math.max(0, Math.ceil(nextAt - performance.now()));
    timer = setTimeout(() => run(supervision.tick(performance.now())), delayMs);
  };

  const pingAll = (): void => {
    for (const worker of pings.count(supervision.serving)) {
      logReport(log, { what: 'hung', worker }, number => running.get(number)?.pid);
      running.get(worker)?.kill(); // the end of the worker follows
    }

    for (const worker of serving()) worker.ping();
  };

  const readMetrics = async (): Promise<void> => {
    const [first] = supervision.serving;
    await Promise.all(
      [...running].map(async ([number, worker]) => {
        const values = await worker.readMetrics(number === first);
        if (values && running.has(number)) metrics.record(number, values);
      }),
    );
  };

  const workers: Workers = {
    get port() {
      return port;
    },
    get serving() {
      return supervision.serving.length;
    },
    unreadyReason: async () => {
      const reasons: UnreadyReason[] = [];
      const ready = serving().map(async worker => {
        const reason = await worker.unreadyReason();
        if (reason === undefined) return undefined;
        reasons.push(reason);
        throw new Error(reason);
      });

      return Promise.any(ready).catch(() => reasons[0] ?? 'starting');
    },
    metrics: {
      render: () => readMetrics().then(() => metrics.render()),
      contentType: metrics.contentType,
    },
    restart: () => run(supervision.restart(performance.now())),
    stop: (delayMs, isFault) => {
      stopDelayMs = delayMs;
      run(supervision.stop(performance.now(), isFault ? 1 : 0));
    },
    kill: killWorkers,
    ended: ended.promise,
  };

  run(supervision.start(performance.now()));
  const pinging = setInterval(pingAll, pingMs);
  void ended.promise.then(() => clearInterval(pinging));

  return started.promise;
}
