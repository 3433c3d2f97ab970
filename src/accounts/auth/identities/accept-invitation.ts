import { setActor, transactControl } from '../../../control/database.ts';
import { clientNetwork } from '../../../lib/http/request/client-address.ts';
import { readEmail } from '../../../lib/http/request/email.ts';
import { fieldProblem } from '../../../lib/problems.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import { useLink, withdrawRegistrationsOf } from '../../mails/use-link.ts';
import type { AuthServices } from '../auth-services.ts';
import { rememberNetwork } from '../login-networks.ts';
import { noPassword } from '../passwords.ts';
import { checkIdToken, refuseIdToken, requireLoggedIn } from './check-id-token.ts';
import { linkIdentity, takeIdToken } from './identity-store.ts';

// A registration, which anybody can send, may have left a password that its sender has chosen.
const confirmWithoutPassword = `
  update users set confirmed_at = now(), password_hash = '${noPassword}'
   where id = $1 and confirmed_at is null`;

/**
 * Accepts an invitation with an ID token in place of a password: the identity is linked to the
 * account, which has no password. Who has the link decides, as with a password: the address that
 * the provider names need not be that of the invitation. The user is the actor in the audit log.
 * @returns false when the token of the mail is not that of a good invitation: nothing has
 *   changed, and the ID token is still good
 * @throws {Problem} `invalid_id_token`, `unavailable`; `validation_failed` for an identity of
 *   another account; `migration_pending`
 */
export async function acceptInvitation(
  services: Pick<AuthServices, 'control' | 'providers' | 'log' | 'secrets' | 'notices'>,
  context: RequestContext,
  token: string,
  idToken: string,
): Promise<boolean> {
  const { control, secrets, notices } = services;
  const { tenant, origin, deadline } = context;
  const checked = await checkIdToken(services, context, idToken);
  const { provider, claims } = checked;

  const isAccepted = await transactControl(
    control,
    async query => {
      const link = await useLink(query, secrets, tenant, ['invitation'], token);
      if (!link) return false;
      if (!(await takeIdToken(query, claims))) {
        throw refuseIdToken(services, context, 'used', provider);
      }
      await requireLoggedIn(query, services, context, checked);

      const { userId, userGuid } = link;
      const { ipAddress, traceId } = origin;
      await setActor(query, JSON.stringify({ userId, userGuid, ipAddress, traceId }));
      await query('confirm_without_password', confirmWithoutPassword, [userId]);
      await withdrawRegistrationsOf(query, userId);

      const linked = await linkIdentity(query, {
        tenantId: tenant.id,
        userId,
        providerId: provider.id,
        subject: claims.sub,
        email: readEmail(claims.email ?? '').address ?? null,
      });
      if (linked === undefined) {
        throw fieldProblem('idToken', 'is of an account that is linked already', 'taken');
      }

      // The token proves that the client reads the mails of the user.
      await rememberNetwork(query, userId, clientNetwork(ipAddress));
      return true;
    },
    { deadline, isRepeatable: false },
  );
  notices.wake();

  return isAccepted;
}
