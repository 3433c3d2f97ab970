import { availableParallelism } from 'node:os';

/** The settings that decide how many processes one start has. */
interface ProcessSettings {
  PROCESSES: number | 'auto';
  CONNECTION_BUDGET: number;
  REDIS_URL?: string | undefined;
}

interface ProcessCount {
  readonly count: number;
  /** The reason why `auto` is fewer than one process per core; undefined if it is not. */
  readonly note: string | undefined;
}

/**
 * Returns the number of concurrent processes for which a connection budget has room. A process
 * needs four connections to the server of the control database, and four are left for a process
 * that joins.
 */
export function maxProcesses(connectionBudget: number): number {
  return Math.floor((connectionBudget - 4) / 4);
}

/**
 * Returns `maxProcesses` for one start: a restart starts a new worker before the old one ends.
 * At least one.
 */
export function maxWorkers(connectionBudget: number): number {
  return Math.max(1, maxProcesses(connectionBudget) - 1);
}

/**
 * Returns how many processes serve requests. `auto` is one per core and at most `maxWorkers`;
 * without Redis it is one, because the limits of requests hold for the whole service, and
 * several processes must count in one place.
 * @param cores that this process may use
 */
export function processCount(
  { PROCESSES, CONNECTION_BUDGET, REDIS_URL }: ProcessSettings,
  cores = availableParallelism(),
): ProcessCount {
  if (PROCESSES !== 'auto') return { count: PROCESSES, note: undefined };

  if (REDIS_URL === undefined && cores > 1) {
    const why =
      'without it, each of several processes would count the limits of requests by itself';
    return {
      count: 1,
      note: `PROCESSES=auto is one process, because REDIS_URL is not set: ${why}`,
    };
  }

  const count = Math.min(cores, maxWorkers(CONNECTION_BUDGET));
  const note = `PROCESSES=auto is ${count} on ${cores} cores: CONNECTION_BUDGET has room for no more`;

  return { count, note: count < cores ? note : undefined };
}
