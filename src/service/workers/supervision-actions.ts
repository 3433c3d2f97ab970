/** The end of a process: its exit code, or the signal. */
export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: string | null;
}

/**
 * The next act of the primary process. A worker is named by its number, which no other worker
 * of it gets.
 */
export type WorkerAction =
  | { readonly kind: 'fork'; readonly worker: number }
  /**
   * Ask the worker to finish its requests and to end; when restarting, to leave new connections
   * to the others.
   */
  | { readonly kind: 'hand_over' | 'stop' | 'kill'; readonly worker: number }
  /** All workers of the first start serve requests. */
  | { readonly kind: 'serving' }
  /** No worker is left. `failure` says why the first start failed. */
  | { readonly kind: 'ended'; readonly exitCode: 0 | 1; readonly failure?: string | undefined }
  | { readonly kind: 'report'; readonly report: WorkerReport };

/** Something that the log tells the operator (`logReport`). */
export interface WorkerReport {
  readonly what: 'started' | 'died' | 'leaving' | 'ended_badly' | 'killed' | 'hung' | RestartReport;
  readonly worker?: number;
  readonly end?: ProcessEnd;
  /** Until the worker is replaced. */
  readonly delayMs?: number | undefined;
  /** Why a restart has failed. */
  readonly reason?: string;
}
export const report = (report: WorkerReport): WorkerAction => ({ kind: 'report', report });
type RestartReport =
  | 'restarting'
  | 'restarted'
  | 'restart_queued'
  | 'restart_ignored'
  | 'restart_failed';

/** Returns the exit code or the signal in words. */
export function describeEnd({ code, signal }: ProcessEnd): string {
  return signal === null ? `exit code ${code}` : `signal ${signal}`;
}
