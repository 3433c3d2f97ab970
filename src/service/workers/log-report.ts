import type { Logger } from 'pino';
import type { WorkerReport } from './supervision-actions.ts';

type Line = readonly [level: 'info' | 'warn' | 'error', event: { event: string }, text: string];

/** The line of the log for each report. */
const lines: Record<WorkerReport['what'], Line> = {
  started: ['info', { event: 'worker_started' }, 'a worker process serves requests'],
  died: ['error', { event: 'worker_died' }, 'a worker process died, and is replaced'],
  leaving: ['error', { event: 'worker_died' }, 'a worker process has a fault, and is replaced'],
  ended_badly: [
    'warn',
    { event: 'worker_ended_badly' },
    'a worker process that was asked to end cut requests off, or failed',
  ],
  killed: ['error', { event: 'worker_killed' }, 'a worker process did not start or end in time'],
  hung: [
    'error',
    { event: 'worker_hung' },
    'a worker process has not answered for 10 s, and is killed',
  ],
  restarting: [
    'info',
    { event: 'restarting' },
    'the worker processes are restarted one after the other',
  ],
  restarted: ['info', { event: 'restarted' }, 'all worker processes were restarted'],
  restart_queued: [
    'info',
    { event: 'restart_queued' },
    'a restart of the worker processes begins when the present one, or the start, has ended',
  ],
  restart_ignored: [
    'info',
    { event: 'restart_ignored' },
    'the worker processes are stopping: they are not restarted',
  ],
  restart_failed: [
    'error',
    { event: 'restart_failed' },
    'a new worker process could not start: the workers that serve requests go on',
  ],
};

/**
 * Logs the reports on the workers. A line names a worker by its process id, as the lines of the
 * worker do.
 */
export function logReport(
  log: Logger,
  report: WorkerReport,
  pidOf: (worker: number) => number | undefined,
): void {
  const { what, worker, end, ...fields } = report;
  const [level, event, text] = lines[what];
  log[level]({ ...event, ...end, ...fields, worker: worker && pidOf(worker) }, text);
}
