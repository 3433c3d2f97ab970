import { setActor, transactControl } from '../../control/database.ts';
import type { TenantRecord } from '../../control/records.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import { type LinkTenant, useLink, withdrawRegistrationsOf } from '../mails/use-link.ts';
import type { AuthServices } from './auth-services.ts';
import { rememberNetwork } from './login-networks.ts';
import { passwordsRefused } from './new-password.ts';

const takeRegistration = `
  delete from registrations where delivery_id = $1
  returning password_hash as "passwordHash", first_name as "firstName", last_name as "lastName", actor`;
const confirmUser = `
  update users set confirmed_at = now(), password_hash = $2, first_name = $3, last_name = $4
   where id = $1 and confirmed_at is null and disabled_at is null`;

interface Registration {
  readonly passwordHash: string;
  readonly firstName: string;
  readonly lastName: string;
  readonly actor: string | null;
}

/**
 * Confirms a user with the data of the registration whose mail had the token, and makes all
 * other registrations of the user void. Remembers the client's network, because the token
 * proves that the client reads the mails of the user. In the audit log, an administrator who
 * sent the registration has created the user.
 * @returns false when the token was used, has expired, or belongs to another tenant, or the
 *   user is confirmed already or disabled
 * @throws {Problem} `wrong_state` when the tenant refuses passwords
 */
export async function confirmRegistration(
  { control, secrets }: Pick<AuthServices, 'control' | 'secrets'>,
  tenant: LinkTenant & Pick<TenantRecord, 'passwordUsers'>,
  token: string,
  network: string,
  deadline: Deadline,
): Promise<boolean> {
  if (tenant.passwordUsers) throw passwordsRefused();

  return transactControl(
    control,
    async query => {
      const link = await useLink(query, secrets, tenant, ['registration'], token);
      if (!link) return false;

      const [registration] = await query<Registration>('take_registration', takeRegistration, [
        link.id,
      ]);
      if (!registration) return false;

      const { passwordHash, firstName, lastName, actor } = registration;
      if (actor !== null) await setActor(query, actor);
      await query('confirm_user', confirmUser, [link.userId, passwordHash, firstName, lastName]);
      await withdrawRegistrationsOf(query, link.userId, link.id);
      await rememberNetwork(query, link.userId, network);

      return true;
    },
    { deadline, isRepeatable: false },
  );
}
