import { problem } from '../lib/problems.ts';
import type { QueryControl } from './database.ts';
import { isRunning } from './running-process.ts';

/** The control migrations that add what a former build does not know. */
export const addedBy = {
  programs: '0002-programs',
  secondFactors: '0004-second-factors',
  passkeys: '0007-passkeys',
  identityProviders: '0010-identity-providers',
  signInRules: '0011-sign-in-rules',
} as const;

const formerBuild = `
  select from processes p
   where kind = 'service' and ${isRunning('p')} and (control_head is null or control_head < $1) limit 1`;

/** Time after which a client tries again, in s: processes are replaced one after the other. */
const retryAfter = '10';

/**
 * Requires that every running process of the service has a build that knows what a migration
 * adds. A former build serves beside this one while it is replaced: what it does not know is
 * not made meanwhile, because it would not keep the rules of it.
 * @param migration its name, of `addedBy`. A process that starts, and has not registered its
 *   build yet, counts as a former one
 * @throws {Problem} `migration_pending`
 */
export async function requireNoFormerBuild(query: QueryControl, migration: string): Promise<void> {
  if ((await query('former_build', formerBuild, [migration])).length === 0) return;

  throw problem('migration_pending', {
    detail: 'The service is being upgraded. Send the request again when that has ended.',
    headers: { 'Retry-After': retryAfter },
  });
}
