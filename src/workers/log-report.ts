import type { Logger } from 'pino';
import type { Report } from './supervision-actions.ts';

type Line = readonly [level: 'info' | 'warn' | 'error', fields: { event: string }, text: string];

/** Logs what happens to the workers. A line names a worker by its process id, as the lines of the worker do. */
export function logReport(log: Logger, report: Report, pidOf: (worker: number) => number | undefined): void {
  const [level, fields, text] = lineOf(report);
  log[level]('worker' in report ? { ...fields, worker: pidOf(report.worker) } : fields, text);
}

function lineOf(report: Report): Line {
  switch (report.what) {
    case 'started':
      return ['info', { event: 'worker_started' }, 'a worker process serves requests'];
    case 'died': {
      const fields = { event: 'worker_died', ...report.end, delayMs: report.delayMs };
      return ['error', fields, 'a worker process died, and is replaced'];
    }
    case 'leaving': {
      const fields = { event: 'worker_died', delayMs: report.delayMs };
      return ['error', fields, 'a worker process has a fault, and is replaced'];
    }
    case 'ended_badly': {
      const fields = { event: 'worker_ended_badly', ...report.end };
      return ['warn', fields, 'a worker process that was asked to end cut requests off, or failed'];
    }
    case 'killed':
      return ['error', { event: 'worker_killed' }, 'a worker process did not start or end in time'];
    case 'hung':
      return ['error', { event: 'worker_hung' }, 'a worker process has not answered for 10 s, and is killed'];
    case 'restarting':
      return ['info', { event: 'restarting' }, 'the worker processes are restarted one after the other'];
    case 'restarted':
      return ['info', { event: 'restarted' }, 'all worker processes were restarted'];
    case 'restart_queued':
      return ['info', { event: 'restart_queued' }, 'a further restart begins when the present one has ended'];
    case 'restart_ignored':
      return ['info', { event: 'restart_ignored' }, 'the workers are starting or stopping: they are not restarted'];
    case 'restart_failed': {
      const fields = { event: 'restart_failed', reason: report.reason };
      return ['error', fields, 'a new worker process could not start: the workers that serve requests go on'];
    }
  }
}
