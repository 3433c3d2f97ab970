import { accountMail } from '../auth/account-mail.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { email } from '../auth/email.ts';
import { addInvitationToken, createToken, replaceInvitationToken } from '../auth/mail-token.ts';
import { transactControl } from '../control/database.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import type { RequestContext } from '../tenancy/request-context.ts';
import { changePeople, rateLimited } from './change-people.ts';
import { inviteUser } from './invite-user.ts';
import { userDocumentation } from './user-documentation.ts';
import { checkEntity, userFields } from './user-records.ts';
import { emailDescription, type UserView, userById, userView, viewOf } from './user-statements.ts';

/**
 * POST of a user: invites a person, by a mail with a token that sets the first password. Token and mail are made after
 * the transaction: if the process ends in between, the person gets no mail, and the administrator invites again.
 */
export function inviteRoute(services: AuthServices, path: string): TenantRoute {
  const { mailLimits, background } = services;
  return defineRoute({
    ...userDocumentation,
    method: 'POST',
    path,
    access: 'users.manage',
    summary: 'Invite a person, who receives a mail to set a password',
    description:
      'The token of the mail is valid once, for 7 days: it sets the first password at `/api/v1/auth/reset-password`. Until ' +
      'then the user cannot log in. Inviting an address again that has not accepted yet replaces names, role, scope and ' +
      'entity. The former token stays valid until the mail server has accepted the new mail.',
    body: userFields.extend({ Email: email().describe(emailDescription) }),
    example: { Email: 'nora@example.com', FirstName: 'Nora', LastName: 'Newman', Role: 'Member', Scope: 'All' },
    response: userView,
    status: 201,
    hasTag: true,
    takesIdempotencyKey: true,
    location: user => `${path}/${user.Id}`,
    handler: async ({ body }, context) => {
      const { tenant } = context;
      const requireEntity = await checkEntity(context, body.EntityId);
      const account = { tenantGuid: tenant.guid, email: body.Email };
      const delayMs = await mailLimits.invitationDelay(account);
      let invitedId: number | undefined;
      const rows = await changePeople(services, context, async transaction => {
        if (delayMs > 0) throw rateLimited(delayMs); // not for a repeated request, which sends no mail
        requireEntity();
        invitedId = await inviteUser(transaction, tenant.id, body);
        return userById([['tenant_id = ?', tenant.id]], invitedId);
      });
      const user = invitedId;
      if (user !== undefined) background.run('invite', () => sendInvitation(services, tenant, user, body.Email));
      return viewOf<UserView>(rows);
    },
  });
}

/**
 * Sends an invitation, unless concurrent requests have reached the limit of mails meanwhile. The token of a former mail
 * is replaced when the mail server has accepted the new mail, so that a mail that fails leaves it valid.
 */
async function sendInvitation(
  { control, mailLimits, sendMail, accountLink }: AuthServices,
  tenant: RequestContext['tenant'],
  userId: number,
  address: string,
): Promise<void> {
  // Counted here, because a request that fails sends no mail.
  if (!(await mailLimits.allowInvitation({ tenantGuid: tenant.guid, email: address }))) return;
  const user = { id: userId, tenantId: tenant.id };
  const token = createToken();
  const added = await transactControl(control, query => addInvitationToken(query, user, token));
  if (!added) return;
  const mail = accountMail({
    to: address,
    subject: `Your invitation to ${tenant.name}`,
    paragraphs: [`An administrator of ${tenant.name} invites you to use its back office.`],
    link: { text: 'Accept, and set your password', address: accountLink('accept', tenant, token) },
    notes: ['The link works once, within 7 days.', 'If you do not expect an invitation, do nothing.'],
  });
  await sendMail(tenant, mail);
  if (!added.isAdded) await transactControl(control, query => replaceInvitationToken(query, userId, token, added));
}
