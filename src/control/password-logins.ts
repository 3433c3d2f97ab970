import { errorFact } from '../lib/narrow.ts';
import type { TenantRecord } from './records.ts';

/**
 * Returns the SQL condition that a user may log in by a password or a passkey.
 * @param user the alias of the row of `users`
 */
export function mayUsePasswordOf(user: string): string {
  return `not exists (select from sign_in_rules rule
    where rule.tenant_id = ${user}.tenant_id and rule.password_logins = 'refused'
      and not ${user}.id = any (rule.except_users))`;
}

/**
 * True if a user of a tenant may log in by a password or a passkey, as the record of the tenant
 * has it: with no query, so that a refused login takes the time of a wrong password.
 */
export function mayUsePassword(
  { passwordUsers }: Pick<TenantRecord, 'passwordUsers'>,
  userId: number,
): boolean {
  return passwordUsers === undefined || passwordUsers.has(userId);
}

/**
 * True if a session that is open may go on: it was opened by a provider, or its user may use a
 * password.
 */
export function isSignInAllowed(
  tenant: Pick<TenantRecord, 'passwordUsers'>,
  { methods, userId }: { readonly methods: readonly string[]; readonly userId: number },
): boolean {
  return methods.includes('idp') || mayUsePassword(tenant, userId);
}

/**
 * True for the refusal of the control database of a change after which nobody would remain who
 * manages the users of a tenant and may use a password, while the tenant refuses passwords.
 */
export function isLastException(error: unknown): boolean {
  return errorFact(error, 'constraint') === 'sign_in_rules_exception_check';
}
