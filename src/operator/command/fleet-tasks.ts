import type { ConfigAccess } from '../../control/installation.ts';
import { taskLimit } from '../../tenancy/connections/share.ts';

/**
 * Returns how many tenants a command works on at the same time: as many as have room in the
 * reserve of `CONNECTION_BUDGET`, and always one.
 * @param max the most that was asked for
 */
export function fleetTasks({ config }: ConfigAccess, max: number): number {
  return taskLimit(config.connectionBudget, max);
}
