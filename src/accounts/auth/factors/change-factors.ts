import { type QueryControl, setActor, transactControl } from '../../../control/database.ts';
import { bodyLimits } from '../../../lib/http/route.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { AuthServices } from '../auth-services.ts';
import { requireVerified } from '../verify.ts';
import type { CodeOwner } from './check-code.ts';
import { type LockedAccount, lockAccountOf, onlyPeople } from './factor-store.ts';

/** The properties that the routes of one's own factors share. */
export const ownFactorRoute = {
  access: 'user',
  tag: 'Authentication',
  bodyLimit: bodyLimits.auth,
} as const;
/** The proof that a change of them needs, for the description of its route. */
export const proofNeeded =
  'Needs a proof of your password of the last five minutes, and of your second factor if you ' +
  'have one: a login, or `POST /api/v1/auth/verify`.';

/** The caller as the owner of factors. */
export function ownerOf({ caller, tenant }: RequestContext): CodeOwner {
  return { tenantId: tenant.id, tenantGuid: tenant.guid, userId: caller.userId };
}

/**
 * Changes the factors of the caller, who has proved to be the person, in one transaction.
 * @throws {Problem} `verification_required`; `wrong_state` for a program or a legacy client
 */
export async function changeFactors<Result>(
  { control }: AuthServices,
  context: RequestContext,
  change: (query: QueryControl, account: LockedAccount) => Promise<Result>,
): Promise<Result> {
  const { caller, actor } = context;
  if (!caller.sessionId) throw onlyPeople();

  return transactControl(control, async query => {
    const account = await lockAccountOf(query, ownerOf(context));
    await requireVerified(query, caller);
    await setActor(query, actor);

    return change(query, account);
  });
}
