import { setTimeout as sleep } from 'node:timers/promises';
import { runConcurrently } from '../run-concurrently.ts';
import type { Candidate } from './migration-runs.ts';

const busyRetryMs = 50;

/**
 * Migrates tenants, at most `concurrency` at a time on each server. A tenant that another process works on is retried
 * after the others.
 * @param migrate resolves to false for such a tenant
 * @returns the number of tenants that were not begun before the run was halted
 */
export async function migrateConcurrently(
  tenants: Candidate[],
  concurrency: number,
  isHalted: () => boolean,
  migrate: (tenant: Candidate) => Promise<boolean>,
): Promise<number> {
  const servers = [...Map.groupBy(tenants, ({ serverId }) => serverId).values()];
  const left = await runConcurrently(servers, Number.POSITIVE_INFINITY, async queue => {
    for (let waiting = queue; ; await sleep(busyRetryMs)) {
      const done = await runConcurrently(waiting, concurrency, async tenant => !isHalted() && (await migrate(tenant)));
      waiting = waiting.filter((_, index) => !done[index]);
      if (waiting.length === 0 || isHalted()) return waiting.length;
    }
  });
  return left.reduce((sum, count) => sum + count, 0);
}
