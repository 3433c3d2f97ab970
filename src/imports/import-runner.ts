import type { ControlDatabase } from '../control/database.ts';
import { createLeaseLoop } from '../control/lease-loop.ts';
import { hasCode } from '../errors.ts';
import type { BackgroundTasks } from '../log/background-tasks.ts';
import type { ContextServices } from '../tenancy/request-context.ts';
import { createImportQueue, type ImportQueue, type LeasedImport } from './import-queue.ts';
import { runImport } from './run-import.ts';

/** Runs the imports of all tenants that this process leases. */
export interface ImportRunner {
  readonly queue: ImportQueue;
  /** Begins to lease imports, also those that other processes left when they ended. */
  start(): void;
  /** Leases the next import now, because there may be one. */
  wake(): void;
  /** Runs an import that has not ended, also if the queue lacks it. Returns at once. */
  resume(tenantId: number, importId: number): void;
  /** Leases no more imports. The running ones stop at their next batch of rows; another process runs them again. */
  stop(): void;
}

interface ImportRunnerOptions extends ContextServices {
  control: ControlDatabase;
  background: BackgroundTasks;
  /** Identifies this process. */
  processId: string;
}

/**
 * Maximum imports that run at a time, each of another tenant. More of them wait: each holds a connection and memory.
 */
const maxRunning = 4;
/** An import of a killed process is leased after its lease of 10 s, so it goes on within 15 s. */
const pollMs = 5_000;
/** When an import is tried again that another process is running, or that failed. */
const retryMs = 5_000;

export function createImportRunner(options: ImportRunnerOptions): ImportRunner {
  const { control, background, processId } = options;
  const queue = createImportQueue(control, processId);
  const running = new Set<LeasedImport>();

  const run = async (leased: LeasedImport): Promise<void> => {
    let isEnded = false;
    try {
      isEnded = await runImport(options, leased, () => loop.isStopping);
    } catch (error) {
      // That this process serves no requests of the tenant is no failure of the import.
      if (!hasCode(error, 'migration_pending', 'tenant_inactive')) throw error;
    } finally {
      running.delete(leased);
      await (isEnded ? queue.remove(leased) : queue.postpone(leased, loop.isStopping ? 0 : retryMs));
      loop.wake();
    }
  };
  const lease = async (): Promise<void> => {
    while (!loop.isStopping && running.size < maxRunning) {
      if ([...running].some(({ lostRuns }) => lostRuns > 0)) return; // it runs alone
      const leased = await queue.lease(running.size);
      if (!leased) return;
      running.add(leased);
      if (background.run('import', () => run(leased))) continue;
      running.delete(leased);
      await queue.postpone(leased, retryMs);
      return;
    }
  };
  const loop = createLeaseLoop({ lease, renew: queue.renew, pollMs });
  return {
    queue,
    start: loop.start,
    wake: loop.wake,
    stop: loop.stop,
    resume: (tenantId, importId) => {
      background.run('import', async () => {
        if (await queue.restore(tenantId, importId)) loop.wake();
      });
    },
  };
}
