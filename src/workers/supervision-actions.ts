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
  | { readonly what: 'killed' | 'hung'; readonly worker: number }
  | { readonly what: 'restarting' | 'restarted' | 'restart_queued' | 'restart_ignored' }
  | { readonly what: 'restart_failed'; readonly reason: string };

/** Returns the exit code or the signal in words. */
export function describeEnd({ code, signal }: ProcessEnd): string {
  return signal === null ? `exit code ${code}` : `signal ${signal}`;
}
