import { setTimeout as sleep } from 'node:timers/promises';
import pLimit, { type LimitFunction } from 'p-limit';
import { runConcurrently } from '../command/run-concurrently.ts';
import type { Candidate } from './migration-runs.ts';

const busyRetryMs = 50;

/** Tenants that are begun for each connection: one is read or recorded while the database of another is changed. */
const begunPerConnection = 2;

/**
 * Migrates tenants, with at most `concurrency` connections to each server. A tenant that another process works on is
 * retried after the others.
 * @param migrate runs the work that needs a connection in `connections`. Resolves to false for a tenant that another
 *   process works on, or that was not begun because the run was halted
 * @returns the number of tenants that were not begun before the run was halted
 */
export async function migrateConcurrently(
  tenants: Candidate[],
  concurrency: number,
  isHalted: () => boolean,
  migrate: (tenant: Candidate, connections: LimitFunction) => Promise<boolean>,
): Promise<number> {
  const servers = [...Map.groupBy(tenants, ({ serverId }) => serverId).values()];
  const left = await runConcurrently(servers, Number.POSITIVE_INFINITY, async queue => {
    const connections = pLimit(concurrency);
    const begin = async (tenant: Candidate) => !isHalted() && (await migrate(tenant, connections));
    for (let waiting = queue; ; await sleep(busyRetryMs)) {
      const done = await runConcurrently(waiting, concurrency * begunPerConnection, begin);
      waiting = waiting.filter((_, index) => !done[index]);
      if (waiting.length === 0 || isHalted()) return waiting.length;
    }
  });
  return left.reduce((sum, count) => sum + count, 0);
}
