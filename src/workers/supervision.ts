import { BackOff } from './back-off.ts';

/** How a process ended. */
export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: string | null;
}

/** What the primary process must do next. A worker is named by its number, which no other worker of it gets. */
export type Action =
  | { readonly kind: 'fork'; readonly worker: number }
  /** Ask the worker to finish its requests and to end; when restarting, to leave new connections to the others. */
  | { readonly kind: 'hand_over' | 'stop' | 'kill'; readonly worker: number }
  /** All workers of the first start serve requests. */
  | { readonly kind: 'serving' }
  /** No worker is left. `failure` says why the first start failed. */
  | { readonly kind: 'ended'; readonly exitCode: 0 | 1; readonly failure?: string | undefined }
  | { readonly kind: 'report'; readonly report: Report };

/** Something that the log tells the operator. */
export type Report =
  | { readonly what: 'started'; readonly worker: number }
  | { readonly what: 'died'; readonly worker: number; readonly end: ProcessEnd; readonly delayMs?: number | undefined }
  | { readonly what: 'leaving'; readonly worker: number; readonly delayMs?: number | undefined }
  /** The worker was asked to end, and had to cut off requests, or failed. */
  | { readonly what: 'ended_badly'; readonly worker: number; readonly end: ProcessEnd }
  | { readonly what: 'killed'; readonly worker: number }
  | { readonly what: 'restarting' | 'restarted' | 'restart_queued' | 'restart_ignored' }
  | { readonly what: 'restart_failed'; readonly reason: string };

interface Worker {
  state: 'starting' | 'serving' | 'ending';
  /** When it is killed, unless it has started or ended by then. */
  killAt?: number | undefined;
  /** Why it cannot start, as it reported. */
  failure?: string;
}

interface Restart {
  /** Workers that a new one must replace. */
  readonly remaining: Set<number>;
  /** The worker that starts, and the one that it replaces; `undefined` when that has died meanwhile. */
  replacing?: { readonly next: number; previous: number | undefined } | undefined;
  /** Another restart was requested meanwhile. */
  again: boolean;
}

/** Of a worker: from its fork until it serves; and from the request to end until its end. In milliseconds. */
export const maxStartMs = 60_000;
export const maxEndMs = 35_000;
/**
 * Decides when workers are started, replaced, restarted and stopped. Has no timers, and no input or output: each method
 * returns what to do now, and `nextAt` says when `tick` must be called. Times are in milliseconds of one clock.
 *
 *   I1: While running, the workers that start (without that of a restart), serve, or wait for their fork are `processes`.
 *   I2: A restart asks a worker to end only when the new one in its place serves.
 *   I3: At most one worker at a time is replaced by a restart.
 *   I4: While stopping, nothing is forked.
 */
export class Supervision {
  readonly #processes: number;
  readonly #workers = new Map<number, Worker>();
  #phase: 'starting' | 'running' | 'stopping' = 'starting';
  #lastWorker = 0;
  /** The times of the forks that wait. */
  #forksAt: number[] = [];
  #restart: Restart | undefined;
  readonly #backOff = new BackOff();
  #died = 0;
  #exitCode: 0 | 1 = 0;
  #failure: string | undefined;

  constructor(processes: number) {
    this.#processes = processes;
  }

  /** Workers that serve requests and are not asked to end. */
  get serving(): number[] {
    return this.#in('serving');
  }

  /** Workers that ended although nobody stopped them. */
  get died(): number {
    return this.#died;
  }

  /** When `tick` must be called; Infinity when it need not be. */
  get nextAt(): number {
    return Math.min(...this.#forksAt, ...[...this.#workers.values()].map(worker => worker.killAt ?? Infinity));
  }

  start(now: number): Action[] {
    return Array.from({ length: this.#processes }, () => this.#fork(now));
  }

  onStarted(number: number, now: number): Action[] {
    const worker = this.#workers.get(number);
    if (worker?.state !== 'starting') return [];
    worker.state = 'serving';
    worker.killAt = undefined;
    const started: Action[] = [{ kind: 'report', report: { what: 'started', worker: number } }];
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

  /** @param text says to the operator why the worker cannot start; its end follows */
  onFailed(number: number, text: string): Action[] {
    const worker = this.#workers.get(number);
    if (worker) worker.failure = text;
    return [];
  }

  /** The worker has a fault, and ends by itself when its requests have ended. */
  onLeaving(number: number, now: number): Action[] {
    const worker = this.#workers.get(number);
    if (this.#phase !== 'running' || worker?.state !== 'serving') return [];
    worker.state = 'ending';
    worker.killAt = now + maxEndMs;
    this.#died++;
    const delayMs = this.#leaveRestart(number) ? undefined : this.#replaceLater(now);
    return [
      { kind: 'report', report: { what: 'leaving', worker: number, delayMs } },
      ...this.#forkDue(now),
      ...this.#continueRestart(now),
    ];
  }

  onEnded(number: number, end: ProcessEnd, now: number): Action[] {
    const worker = this.#workers.get(number);
    if (!worker) return [];
    this.#workers.delete(number);
    if (this.#phase === 'starting') return this.#failStart(worker, end, now);
    if (this.#phase === 'stopping') return this.#endWhenAlone(end);
    if (worker.state !== 'ending') return this.#replaceDead(number, worker, end, now);
    const report: Action[] =
      end.code === 0 ? [] : [{ kind: 'report', report: { what: 'ended_badly', worker: number, end } }];
    return this.#restart?.replacing?.previous === number ? [...report, ...this.#endStep(now)] : report;
  }

  /** Replaces all workers, one after the other. */
  restart(now: number): Action[] {
    if (this.#phase !== 'running') return [{ kind: 'report', report: { what: 'restart_ignored' } }];
    if (this.#restart) {
      this.#restart.again = true;
      return [{ kind: 'report', report: { what: 'restart_queued' } }];
    }
    this.#restart = { remaining: new Set([...this.#in('serving'), ...this.#in('starting')]), again: false };
    return [{ kind: 'report', report: { what: 'restarting' } }, ...this.#continueRestart(now)];
  }

  /** Asks all workers to end. @param exitCode 1 after a fault of the primary process */
  stop(now: number, exitCode: 0 | 1 = 0): Action[] {
    if (exitCode === 1) this.#exitCode = 1;
    if (this.#phase === 'stopping') return [];
    this.#phase = 'stopping';
    this.#forksAt = [];
    this.#restart = undefined;
    const numbers = [...this.#in('serving'), ...this.#in('starting')];
    const actions = numbers.map(number => this.#end(number, 'stop', now));
    return this.#workers.size === 0 ? this.#endWhenAlone({ code: 0, signal: null }) : actions;
  }

  tick(now: number): Action[] {
    const late = [...this.#workers].filter(([, { killAt }]) => killAt !== undefined && killAt <= now);
    const kills = late.flatMap(([number, worker]): Action[] => {
      worker.killAt = undefined;
      return [
        { kind: 'report', report: { what: 'killed', worker: number } },
        { kind: 'kill', worker: number },
      ];
    });
    return [...kills, ...this.#forkDue(now)];
  }

  #in(state: Worker['state']): number[] {
    return [...this.#workers].filter(([, worker]) => worker.state === state).map(([number]) => number);
  }

  #fork(now: number): Action {
    const worker = ++this.#lastWorker;
    this.#workers.set(worker, { state: 'starting', killAt: now + maxStartMs });
    return { kind: 'fork', worker };
  }

  #forkDue(now: number): Action[] {
    const due = this.#forksAt.filter(at => at <= now);
    this.#forksAt = this.#forksAt.filter(at => at > now);
    return due.map(() => this.#fork(now));
  }

  #end(number: number, kind: 'hand_over' | 'stop', now: number): Action {
    const worker = this.#workers.get(number);
    if (worker) Object.assign(worker, { state: 'ending', killAt: now + maxEndMs });
    return { kind, worker: number };
  }

  /** @returns the delay until the fork */
  #replaceLater(now: number): number {
    const delayMs = this.#backOff.next(now);
    this.#forksAt.push(now + delayMs);
    return delayMs;
  }

  #replaceDead(number: number, worker: Worker, end: ProcessEnd, now: number): Action[] {
    this.#died++;
    const { next, previous } = this.#restart?.replacing ?? {};
    if (next === number && worker.state === 'starting') {
      this.#restart = undefined;
      const reason = worker.failure ?? `the worker ended during its start (${describeEnd(end)})`;
      if (previous === undefined) this.#replaceLater(now);
      return [{ kind: 'report', report: { what: 'restart_failed', reason } }, ...this.#forkDue(now)];
    }
    // If a restart is replacing this very worker, the next one is starting already.
    const delayMs = this.#leaveRestart(number) ? undefined : this.#replaceLater(now);
    return [
      { kind: 'report', report: { what: 'died', worker: number, end, delayMs } },
      ...this.#forkDue(now),
      ...this.#continueRestart(now),
    ];
  }

  /** @returns true if a worker that replaces this one is starting */
  #leaveRestart(number: number): boolean {
    this.#restart?.remaining.delete(number);
    const replacing = this.#restart?.replacing;
    if (replacing?.previous !== number) return false;
    replacing.previous = undefined;
    return true;
  }

  /** Starts the next step of a restart, if one is under way and between two steps. */
  #continueRestart(now: number): Action[] {
    const restart = this.#restart;
    if (!restart || restart.replacing) return [];
    const previous = this.serving.find(number => restart.remaining.has(number));
    if (previous !== undefined) {
      const fork = this.#fork(now);
      restart.remaining.delete(previous);
      restart.replacing = { next: this.#lastWorker, previous };
      return [fork];
    }
    if (restart.remaining.size > 0) return []; // they are starting; `onStarted` continues
    this.#restart = undefined;
    const restarted: Action = { kind: 'report', report: { what: 'restarted' } };
    return restart.again ? [restarted, ...this.restart(now)] : [restarted];
  }

  #endStep(now: number): Action[] {
    if (this.#restart) this.#restart.replacing = undefined;
    return this.#continueRestart(now);
  }

  #failStart({ failure }: Worker, end: ProcessEnd, now: number): Action[] {
    this.#failure = failure ?? `A worker process ended during the start (${describeEnd(end)}).`;
    return this.stop(now, 1);
  }

  #endWhenAlone({ code }: ProcessEnd): Action[] {
    if (code !== 0) this.#exitCode = 1;
    if (this.#workers.size > 0) return [];
    return [{ kind: 'ended', exitCode: this.#exitCode, failure: this.#failure }];
  }
}

/** Returns the exit code or the signal in words. */
function describeEnd({ code, signal }: ProcessEnd): string {
  return signal === null ? `exit code ${code}` : `signal ${signal}`;
}
