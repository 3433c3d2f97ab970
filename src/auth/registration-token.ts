import type { EntityManager } from '@mikro-orm/postgresql';
import { type ControlDatabase, setActor, transactControl } from '../control/database.ts';
import type { Deadline } from '../runtime/deadline.ts';
import { rememberNetwork } from './login-networks.ts';
import { createToken, hashOf } from './mail-token.ts';
import { removeExpired, removeUnconfirmed } from './remove-expired.ts';

/**
 * The data of a registration. It becomes the data of the user only when the token of this registration is confirmed.
 */
export interface RegistrationData {
  readonly passwordHash: string;
  readonly firstName: string;
  readonly lastName: string;
  /** The administrator who registered the person, as `RequestContext.actor`; null: the person, or anyone else. */
  readonly actor: string | null;
}

/**
 * Stores a registration, and returns its token of 43 characters, valid for 24 hours. An address may have several. Each
 * token confirms the data of its own registration, so an attacker who also registers the address cannot set the
 * password of its owner. Also removes expired registrations, and users who
 * never confirmed.
 */
export async function createRegistration(
  em: EntityManager,
  user: { id: number; tenantId: number },
  { passwordHash, firstName, lastName, actor }: RegistrationData,
): Promise<string> {
  const token = createToken();
  await em.execute(
    `insert into registrations (hash, tenant_id, user_id, password_hash, first_name, last_name, actor, expires_at)
      values (?, ?, ?, ?, ?, ?, ?, now() + interval '24 hours')`,
    [hashOf(token), user.tenantId, user.id, passwordHash, firstName, lastName, actor],
  );
  await removeExpired(em, 'registrations');
  await removeUnconfirmed(em); // not this user, who has a registration now
  return token;
}

const registrationActor = 'select actor from registrations where hash = $1 and tenant_id = $2 and actor is not null';
const confirmUser = `
  update users u
     set confirmed_at = now(), password_hash = r.password_hash, first_name = r.first_name, last_name = r.last_name
    from registrations r
   where r.hash = $1 and r.tenant_id = $2 and r.expires_at > now()
     and u.id = r.user_id and u.tenant_id = r.tenant_id and u.confirmed_at is null and u.disabled_at is null
  returning u.id`;
const deleteRegistrations = 'delete from registrations where user_id = $1';

/**
 * Confirms a user with the data of the token's registration, and deletes all registrations of the user. Remembers the
 * client's network, because the token proves that the client reads the mails of the user. In the audit log, an
 * administrator who sent the registration has created the user.
 * @returns false when the token was used, has expired, or belongs to another tenant, or the user is confirmed already
 *   or
 * disabled
 */
export function confirmRegistration(
  control: ControlDatabase,
  tenantId: number,
  token: string,
  network: string,
  deadline: Deadline,
): Promise<boolean> {
  return transactControl(
    control,
    async query => {
      const values = [hashOf(token), tenantId];
      const [sender] = await query<{ actor: string }>('registration_actor', registrationActor, values);
      if (sender) await setActor(query, sender.actor);
      const [user] = await query<{ id: string }>('confirm_user', confirmUser, values);
      if (!user) return false;
      await query('delete_registrations', deleteRegistrations, [user.id]);
      await rememberNetwork(query, Number(user.id), network);
      return true;
    },
    { deadline, isRepeatable: false },
  );
}
