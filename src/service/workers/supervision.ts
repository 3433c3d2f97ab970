import { BackOff } from './back-off.ts';
import { RollingRestart } from './rolling-restart.ts';
import { describeEnd, type ProcessEnd, report, type WorkerAction } from './supervision-actions.ts';
import { type Worker, WorkerTable } from './worker-table.ts';

/**
 * Decides when workers are started, replaced, restarted and stopped. Has no timers, and no
 * input or output: each method returns the actions to take now, and `nextAt` says when `tick`
 * must be called. Times are in milliseconds of one clock.
 *
 *   I1: While running, the workers that start (other than that of a restart), the workers that
 *       serve, and the forks that wait are `processes` in number.
 *   I2: A restart asks a worker to end only when the new one in its place serves.
 *   I3: At most one worker at a time is replaced by a restart.
 *   I4: While stopping, nothing is forked.
 */
export class Supervision {
  readonly #processes: number;
  readonly #workers = new WorkerTable();
  #phase: 'starting' | 'running' | 'stopping' = 'starting';
  /** The times of the forks that wait. */
  #forksAt: number[] = [];
  #restart: RollingRestart | undefined;
  readonly #backOff = new BackOff();
  #died = 0;
  #exitCode: 0 | 1 = 0;
  #failure: string | undefined;

  constructor(processes: number) {
    this.#processes = processes;
  }

  /** Workers that serve requests and are not asked to end. */
  get serving(): number[] {
    return this.#workers.in('serving');
  }

  /** Workers that ended although nobody stopped them. */
  get died(): number {
    return this.#died;
  }

  /** The time at which `tick` must be called; Infinity when it need not be. */
  get nextAt(): number {
    return Math.min(...this.#forksAt, this.#workers.nextKillAt);
  }

  start(now: number): WorkerAction[] {
    return Array.from({ length: this.#processes }, () => this.#fork(now));
  }

  onStarted(number: number, now: number): WorkerAction[] {
    const worker = this.#workers.get(number);
    if (worker?.state !== 'starting') return [];

    this.#workers.serves(worker);
    const started = [report({ what: 'started', worker: number })];
    if (this.#phase === 'starting') {
      if (this.serving.length < this.#processes) return started;
      this.#phase = 'running';
      return [...started, { kind: 'serving' }];
    }

    const replacing = this.#restart?.replacing;
    if (replacing?.next !== number) return [...started, ...this.#continueRestart(now)];

    const { previous } = replacing;
    if (previous === undefined) return [...started, ...this.#endStep(now)];

    return [...started, this.#end(previous, 'hand_over', now)];
  }

  /**
   * Notes that a worker cannot start, and is about to end.
   * @param text the reason, for the operator
   */
  onFailed(number: number, text: string): void {
    const worker = this.#workers.get(number);
    if (worker) worker.failure = text;
  }

  /** Replaces a worker that has a fault, and ends by itself when its requests have ended. */
  onLeaving(number: number, now: number): WorkerAction[] {
    const worker = this.#workers.get(number);
    if (this.#phase !== 'running' || worker?.state !== 'serving') return [];
    this.#workers.ends(number, now);
    this.#died++;
    const delayMs = this.#restart?.leave(number) ? undefined : this.#replaceLater(now);
    return [
      report({ what: 'leaving', worker: number, delayMs }),
      ...this.#forkDue(now),
      ...this.#continueRestart(now),
    ];
  }

  onEnded(number: number, end: ProcessEnd, now: number): WorkerAction[] {
    const worker = this.#workers.remove(number);
    if (!worker) return [];
    if (this.#phase === 'starting') return this.#failStart(worker, end, now);
    if (this.#phase === 'stopping') return this.#endWhenAlone(end);
    if (worker.state !== 'ending') return this.#replaceDead(number, worker, end, now);
    const reports = end.code === 0 ? [] : [report({ what: 'ended_badly', worker: number, end })];
    return this.#restart?.replacing?.previous === number
      ? [...reports, ...this.#endStep(now)]
      : reports;
  }

  /** Replaces all workers, one after the other. */
  restart(now: number): WorkerAction[] {
    if (this.#phase !== 'running') return [report({ what: 'restart_ignored' })];
    if (this.#restart) {
      this.#restart.again = true;
      return [report({ what: 'restart_queued' })];
    }
    this.#restart = new RollingRestart([...this.serving, ...this.#workers.in('starting')]);
    return [report({ what: 'restarting' }), ...this.#continueRestart(now)];
  }

  /**
   * Asks all workers to end.
   * @param exitCode 1 after a fault of the primary process
   */
  stop(now: number, exitCode: 0 | 1 = 0): WorkerAction[] {
    if (exitCode === 1) this.#exitCode = 1;
    if (this.#phase === 'stopping') return [];
    this.#phase = 'stopping';
    this.#forksAt = [];
    this.#restart = undefined;
    const numbers = [...this.serving, ...this.#workers.in('starting')];
    const actions = numbers.map(number => this.#end(number, 'stop', now));
    return this.#workers.size === 0 ? this.#endWhenAlone({ code: 0, signal: null }) : actions;
  }

  tick(now: number): WorkerAction[] {
    const late = this.#workers.takeLate(now);
    const kills = late.flatMap((worker): WorkerAction[] => [
      report({ what: 'killed', worker }),
      { kind: 'kill', worker },
    ]);
    return [...kills, ...this.#forkDue(now)];
  }

  #fork(now: number) {
    return { kind: 'fork', worker: this.#workers.add(now) } as const;
  }

  #forkDue(now: number): WorkerAction[] {
    const due = this.#forksAt.filter(at => at <= now);
    this.#forksAt = this.#forksAt.filter(at => at > now);
    return due.map(() => this.#fork(now));
  }

  #end(number: number, kind: 'hand_over' | 'stop', now: number): WorkerAction {
    this.#workers.ends(number, now);
    return { kind, worker: number };
  }

  /** @returns the delay until the fork */
  #replaceLater(now: number): number {
    const delayMs = this.#backOff.next(now);
    this.#forksAt.push(now + delayMs);
    return delayMs;
  }

  #replaceDead(number: number, worker: Worker, end: ProcessEnd, now: number): WorkerAction[] {
    this.#died++;
    const { next, previous } = this.#restart?.replacing ?? {};
    if (next === number && worker.state === 'starting') {
      this.#restart = undefined;
      const reason = worker.failure ?? `the worker ended during its start (${describeEnd(end)})`;
      if (previous === undefined) this.#replaceLater(now);
      return [report({ what: 'restart_failed', reason }), ...this.#forkDue(now)];
    }

    // If a restart is replacing this very worker, the next one is starting already.
    const delayMs = this.#restart?.leave(number) ? undefined : this.#replaceLater(now);
    return [
      report({ what: 'died', worker: number, end, delayMs }),
      ...this.#forkDue(now),
      ...this.#continueRestart(now),
    ];
  }

  /** Starts the next step of a restart, if one is under way and between two steps. */
  #continueRestart(now: number): WorkerAction[] {
    const restart = this.#restart;
    if (!restart) return [];

    const previous = restart.pick(this.serving);
    if (previous !== undefined) {
      const fork = this.#fork(now);
      restart.begin(fork.worker, previous);
      return [fork];
    }

    if (!restart.isDone) return []; // a worker starts; `onStarted` continues

    this.#restart = undefined;
    const restarted = report({ what: 'restarted' });

    return restart.again ? [restarted, ...this.restart(now)] : [restarted];
  }

  #endStep(now: number): WorkerAction[] {
    this.#restart?.endStep();
    return this.#continueRestart(now);
  }

  #failStart({ failure }: Worker, end: ProcessEnd, now: number): WorkerAction[] {
    this.#failure = failure ?? `A worker process ended during the start (${describeEnd(end)}).`;
    return this.stop(now, 1);
  }

  #endWhenAlone({ code }: ProcessEnd): WorkerAction[] {
    if (code !== 0) this.#exitCode = 1;
    if (this.#workers.size > 0) return [];
    return [{ kind: 'ended', exitCode: this.#exitCode, failure: this.#failure }];
  }
}
