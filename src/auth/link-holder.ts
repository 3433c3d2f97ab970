import { type ControlDatabase, queryControl } from '../control/database.ts';
import type { AccountAction } from './account-link.ts';
import { hashOf } from './mail-token.ts';

/** The user to whom a link was sent. */
export interface LinkHolder {
  readonly email: string;
}

const holderOfPasswordLink = `
  select u.email from mail_tokens t join users u on u.id = t.user_id
   where t.hash = $1 and t.tenant_id = $2 and t.purpose = $3 and t.expires_at > now() and u.disabled_at is null`;
const holderOfConfirmation = `
  select u.email from registrations r join users u on u.id = r.user_id
   where r.hash = $1 and r.tenant_id = $2 and r.expires_at > now() and u.confirmed_at is null and u.disabled_at is null`;

/** Returns to whom a link was sent, and does not use it; undefined when it is used, expired or of another tenant. */
export async function findLinkHolder(
  control: ControlDatabase,
  tenantId: number,
  action: AccountAction,
  token: string,
): Promise<LinkHolder | undefined> {
  const values = [hashOf(token), tenantId];
  const [holder] =
    action === 'confirm'
      ? await queryControl<LinkHolder>(control, 'holder_of_confirmation', holderOfConfirmation, values)
      : await queryControl<LinkHolder>(control, 'holder_of_password_link', holderOfPasswordLink, [
          ...values,
          action === 'accept' ? 'confirm' : 'reset',
        ]);
  return holder;
}
