import type { Logger } from 'pino';
import type { UnreadyReason } from '../../lib/http/server/management.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { WorkerMetrics } from '../metrics/worker-metrics.ts';
import { logReport } from './log-report.ts';
import type { WorkerMessage } from './messages.ts';
import { Pings } from './pings.ts';
import { Supervision } from './supervision.ts';
import type { WorkerAction, WorkerReport } from './supervision-actions.ts';
import { WorkerProcess } from './worker-process.ts';

const pingMs = 1_000;

interface WorkerOptions {
  processes: number;
  /**
   * The URL of the embedded control database; undefined if the control database is configured,
   * whose URL the workers read themselves.
   */
  databaseUrl: string | undefined;
  log: Logger;
}

/**
 * Starts workers, and keeps them running. Resolves when all of them serve requests.
 * @throws {OperatorError} with the text of the first one that cannot start; none is left then
 */
export async function startWorkers(options: WorkerOptions): Promise<Workers> {
  const workers = new Workers(options);
  await workers.start();
  return workers;
}

/** The worker processes of this process: takes the actions that `Supervision` decides on. */
export class Workers {
  readonly #supervision: Supervision;
  readonly #databaseUrl: string | undefined;
  readonly #log: Logger;
  readonly #running = new Map<number, WorkerProcess>();
  readonly #pings = new Pings();
  readonly #metrics = new WorkerMetrics(() => ({
    serving: this.#supervision.serving.length,
    died: this.#supervision.died,
  }));
  readonly #started = Promise.withResolvers<void>();
  readonly #ended = Promise.withResolvers<0 | 1>();
  #port = 0;
  #stopDelayMs = 0;
  /** Fires at `nextAt` of the supervision. */
  #timer: NodeJS.Timeout | undefined;

  constructor({ processes, databaseUrl, log }: WorkerOptions) {
    this.#supervision = new Supervision(processes);
    this.#databaseUrl = databaseUrl;
    this.#log = log;
  }

  /** The port that the workers listen on. */
  get port(): number {
    return this.#port;
  }

  /** The number of workers that serve requests. */
  get serving(): number {
    return this.#supervision.serving.length;
  }

  /** Resolves with the exit code when all workers have ended. */
  get ended(): Promise<0 | 1> {
    return this.#ended.promise;
  }

  get metrics(): { render(): Promise<string>; readonly contentType: string } {
    return {
      render: () => this.#renderMetrics(),
      contentType: this.#metrics.contentType,
    };
  }

  /**
   * Resolves when all workers serve requests.
   * @throws {OperatorError} with the text of the first one that cannot start; none is left then
   */
  start(): Promise<void> {
    this.#perform(this.#supervision.start(performance.now()));
    const pinging = setInterval(() => this.#ping(), pingMs);
    void this.ended.then(() => clearInterval(pinging));

    return this.#started.promise;
  }

  /** Replaces all workers, one after the other. */
  restart(): void {
    this.#perform(this.#supervision.restart(performance.now()));
  }

  /**
   * Asks all workers to end.
   * @param isFault makes the exit code 1
   */
  stop(delayMs: number, isFault: boolean): void {
    this.#stopDelayMs = delayMs;
    this.#perform(this.#supervision.stop(performance.now(), isFault ? 1 : 0));
  }

  /**
   * Resolves to the reason why no worker is ready; undefined while at least one is. A worker
   * that hangs is replaced.
   */
  async unreadyReason(): Promise<UnreadyReason | undefined> {
    const reasons: UnreadyReason[] = [];
    const ready = this.#serving.map(async worker => {
      const reason = await worker.unreadyReason();
      if (reason === undefined) return undefined;
      reasons.push(reason);
      throw new Error(reason);
    });

    return Promise.any(ready).catch(() => reasons[0] ?? 'starting');
  }

  /** The processes of the workers that serve requests. */
  get #serving(): WorkerProcess[] {
    return this.#supervision.serving.flatMap(number => this.#running.get(number) ?? []);
  }

  /** Takes the actions, and sets the timer of the next ones. */
  #perform(actions: readonly WorkerAction[]): void {
    for (const action of actions) this.#take(action);

    clearTimeout(this.#timer);
    const { nextAt } = this.#supervision;
    if (nextAt === Number.POSITIVE_INFINITY) return;

    const delayMs = Math.max(0, Math.ceil(nextAt - performance.now()));
    const tick = (): void => this.#perform(this.#supervision.tick(performance.now()));
    this.#timer = setTimeout(tick, delayMs);
  }

  #take(action: WorkerAction): void {
    switch (action.kind) {
      case 'fork':
        this.#fork(action.worker);
        break;
      case 'hand_over':
        this.#running.get(action.worker)?.send({ type: 'hand_over' });
        break;
      case 'stop':
        this.#running.get(action.worker)?.send({ type: 'stop', delayMs: this.#stopDelayMs });
        break;
      case 'kill':
        this.#running.get(action.worker)?.kill();
        break;
      case 'report':
        this.#report(action.report);
        break;
      case 'serving':
        this.#started.resolve();
        break;
      case 'ended':
        if (action.failure !== undefined) {
          this.#started.reject(new OperatorError(action.failure));
        }
        this.#ended.resolve(action.exitCode);
        break;
    }
  }

  #fork(number: number): void {
    const worker = new WorkerProcess({
      onHeard: () => this.#pings.hear(number),
      onMessage: message => this.#receive(number, message),
      onLastMetrics: values => this.#metrics.record(number, values),
      onEnded: end => {
        this.#perform(this.#supervision.onEnded(number, end, performance.now()));
        this.#running.delete(number);
      },
      onClosed: () => this.#metrics.end(number),
    });

    this.#running.set(number, worker);
    worker.send({ type: 'start', databaseUrl: this.#databaseUrl });
  }

  #receive(number: number, message: WorkerMessage): void {
    switch (message.type) {
      case 'started':
        this.#port = message.port;
        this.#perform(this.#supervision.onStarted(number, performance.now()));
        break;
      case 'failed':
        this.#supervision.onFailed(number, message.text);
        break;
      case 'leaving':
        this.#perform(this.#supervision.onLeaving(number, performance.now()));
        break;
    }
  }

  /** Pings each worker that serves, and kills those that have answered no ping for 10 s. */
  #ping(): void {
    for (const worker of this.#pings.count(this.#supervision.serving)) {
      this.#report({ what: 'hung', worker });
      this.#running.get(worker)?.kill(); // the end of the worker follows
    }

    for (const worker of this.#serving) worker.ping();
  }

  async #renderMetrics(): Promise<string> {
    const [first] = this.#supervision.serving;
    await Promise.all(
      [...this.#running].map(async ([number, worker]) => {
        const values = await worker.readMetrics(number === first);
        if (values && this.#running.has(number)) this.#metrics.record(number, values);
      }),
    );

    return this.#metrics.render();
  }

  #report(report: WorkerReport): void {
    logReport(this.#log, report, number => this.#running.get(number)?.pid);
  }
}
