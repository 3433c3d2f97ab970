import { type RateLimitStore, waitMsOf } from '../../lib/http/steps/rate-limit/rate-limit-store.ts';
import { hashKey } from '../../lib/http/steps/rate-limit/rate-limits.ts';
import type { Rate } from '../../lib/http/steps/rate-limit/sliding-window.ts';

/** An administrator who changes users or roles. */
interface Administrator {
  readonly tenantGuid: string;
  readonly userId: number;
}

/** Counts the changes of users and roles, each of which adds rows to the control database. */
export type PeopleLimits = ReturnType<typeof createPeopleLimits>;

/**
 * The changes of a tenant, as a multiple of those of one administrator: one cannot use them all
 * up, so that another one can still disable the first.
 */
const tenantFactor = 4;

/**
 * @param rate of one administrator; all of a tenant together have `tenantFactor` times as many
 *   changes
 */
export function createPeopleLimits(store: Pick<RateLimitStore, 'hit' | 'peek'>, rate: Rate) {
  const windows = ({ tenantGuid, userId }: Administrator) =>
    [
      [`rl:people:${hashKey(tenantGuid, String(userId))}`, rate],
      [`rl:people:${hashKey(tenantGuid)}`, { ...rate, max: rate.max * tenantFactor }],
    ] as const;
  return {
    /**
     * Returns after how many milliseconds the administrator may make a further change; 0 = now.
     */
    changeDelay: (administrator: Administrator) => waitMsOf(store, windows(administrator)),
    countChange: async (administrator: Administrator): Promise<void> => {
      await Promise.all(windows(administrator).map(([key, limit]) => store.hit(key, limit)));
    },
  };
}
