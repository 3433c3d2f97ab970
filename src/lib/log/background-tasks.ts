import type { Logger } from 'pino';
import { describeError } from './describe-error.ts';

/** Work that runs after its request was answered, such as a batch of webhooks. */
export type BackgroundTasks = ReturnType<typeof createBackgroundTasks>;

const maxTasks = 1_000;

export function createBackgroundTasks(log: Logger) {
  const tasks = new Set<Promise<void>>();

  return {
    /**
     * Runs a task. Logs a failure; above 1,000 running tasks, drops the task and logs that.
     * @returns false when the task was dropped
     */
    run(name: string, task: () => Promise<void>): boolean {
      if (tasks.size >= maxTasks) {
        log.error(
          { event: 'background_overloaded', task: name },
          'dropped a background task: too many are running',
        );
        return false;
      }

      const running: Promise<void> = task()
        .catch(error =>
          log.error(
            { event: 'background_failed', task: name, err: describeError(error) },
            'a background task failed',
          ),
        )
        .finally(() => tasks.delete(running));
      tasks.add(running);
      return true;
    },

    /** Resolves when all tasks have ended. */
    drain: async (): Promise<void> => {
      while (tasks.size > 0) await Promise.all(tasks);
    },
  };
}
