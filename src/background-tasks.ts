import type { Logger } from 'pino';
import { describeError } from './log.ts';

/** Work that no request waits for. */
export interface BackgroundTasks {
  /** Runs a task; when it fails, that is logged. Beyond a bound, tasks are dropped, and that is logged too. */
  run(name: string, task: () => Promise<void>): void;
  /** Resolves when every task has ended. */
  drain(): Promise<void>;
}

const maxTasks = 1_000; // mails that wait for a slow server

export function createBackgroundTasks(log: Logger): BackgroundTasks {
  const tasks = new Set<Promise<void>>();
  return {
    run(name, task) {
      if (tasks.size >= maxTasks) {
        log.error({ event: 'background_overloaded', task: name }, 'too many background tasks: one was dropped');
        return;
      }
      const running: Promise<void> = task()
        .catch(error =>
          log.error({ event: 'background_failed', task: name, err: describeError(error) }, 'a background task failed'),
        )
        .finally(() => tasks.delete(running));
      tasks.add(running);
    },
    drain: async () => {
      while (tasks.size > 0) await Promise.all(tasks);
    },
  };
}
