import { type QueryControl, setActor } from '../../../control/database.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { CodeOwner } from './check-code.ts';
import type { LockedAccount } from './factor-store.ts';

/** Names the person who logs in for the audit log. */
export async function setPerson(
  query: QueryControl,
  { userId }: Pick<CodeOwner, 'userId'>,
  { origin }: RequestContext,
  { guid: userGuid }: Pick<LockedAccount, 'guid'>,
): Promise<void> {
  const { ipAddress, traceId } = origin;
  await setActor(query, JSON.stringify({ userId, userGuid, ipAddress, traceId }));
}
