import { type ControlDatabase, type QueryControl, transactControl } from '../control/database.ts';
import type { Rate } from '../http/rate-limit/sliding-window.ts';
import type { LeasedMail } from './mail-queue.ts';
import { removeReplacedDeliveries } from './mail-requests.ts';
import { removeOldDeliveries, removeUnconfirmed } from './remove-old-deliveries.ts';

/**
 * The outcome for an address that somebody asked a mail for. `unknown`: nobody gets a mail;
 * `limited`: the address has got as many as it may; `replaced`: a later mail is in its place.
 */
export type Found = 'found' | 'unknown' | 'limited' | 'replaced';

/** A client that registers a foreign address must not use up the mails of its owner. */
const networkFactor = 4;

// The lock makes the mail follow or precede a change of the user: a disabled user never gets
// one.
const findResettable = `
  select id::float8 as id from users
   where tenant_id = $1 and email = $2 and confirmed_at is not null and disabled_at is null for no key update`;
const lockKnown = `
  select id::float8 as id, confirmed_at is null and disabled_at is null and invited_at is null as "isRegistration"
    from users where tenant_id = $1 and email = $2 for no key update`;
/**
 * Password and names of an unconfirmed user are placeholders: its confirmation sets those of
 * the confirmed registration.
 */
const insertUnconfirmed = `
  insert into users (tenant_id, email, password_hash, first_name, last_name, role_id, scope)
  select $1, $2, password_hash, first_name, last_name, roles.id, 'Self'
    from registrations, roles
   where delivery_id = $3 and roles.tenant_id = $1 and roles.name = 'Member'
  on conflict (tenant_id, email) do nothing`;
const countMails = `
  select exists (select from mail_deliveries
                  where user_id = $1 and kind = $2 and about = $3 and id > $4) as "isReplaced",
         count(*) filter (where about = $3)::int as same, count(*)::int as "all"
    from mail_deliveries
   where user_id = $1 and kind = $2 and id <> $4
     and (state = 'waiting' or state = 'sent' and settled_at > now() - $5::float8 * interval '1 ms')`;
const setRecipient = 'update mail_deliveries set user_id = $2, address = null where id = $1';

interface KnownUser {
  readonly id: number;
  readonly isRegistration: boolean;
}

/**
 * Looks up who has the address that a mail was asked for, makes a user of an address that was
 * registered, and enters the user into the delivery. Mails that were accepted in the time of
 * the limit count, and those that may still be: at most `rate.max` resets of an account, and as
 * many registrations of one client; `networkFactor` times as many registrations of all clients
 * together.
 */
export function findRecipient(control: ControlDatabase, mail: LeasedMail, rate: Rate): Promise<Found> {
  return transactControl(control, async query => {
    const userId = mail.kind === 'reset' ? await findResettableUser(query, mail) : await registerUser(query, mail);
    if (userId === undefined) return 'unknown';

    const found = await enterUser(query, mail, userId, rate);
    await removeOldDeliveries(query);
    if (mail.kind === 'registration') await removeUnconfirmed(query); // not this user, who has a delivery now
    return found;
  });
}

async function findResettableUser(query: QueryControl, { tenantId, address }: LeasedMail): Promise<number | undefined> {
  const [user] = await query<{ id: number }>('mails_find_resettable', findResettable, [tenantId, address]);
  return user?.id;
}

/**
 * Returns the user of a registered address. Who was invited keeps the role that the invitation
 * gives: the password of a registration, which anyone can send, must not become theirs.
 */
async function registerUser(query: QueryControl, { id, tenantId, address }: LeasedMail): Promise<number | undefined> {
  const key = [tenantId, address];
  const [known] = await query<KnownUser>('mails_lock_known', lockKnown, key);
  if (known) return known.isRegistration ? known.id : undefined;

  await query('mails_insert_unconfirmed', insertUnconfirmed, [...key, id]);
  // The one that was added, or one that was added at the same time.
  const [added] = await query<KnownUser>('mails_lock_known', lockKnown, key);
  return added?.isRegistration ? added.id : undefined;
}

async function enterUser(query: QueryControl, mail: LeasedMail, userId: number, rate: Rate): Promise<Found> {
  const { id, kind, about } = mail;
  const values = [userId, kind, about, id, rate.windowMs];
  await removeReplacedDeliveries(query, userId, mail);

  const [counted] = await query<{ isReplaced: boolean; same: number; all: number }>('mails_count', countMails, values);
  if (counted?.isReplaced) return 'replaced';
  if ((counted?.same ?? 0) >= rate.max || (counted?.all ?? 0) >= rate.max * networkFactor) return 'limited';

  await query('mails_set_recipient', setRecipient, [id, userId]);
  return 'found';
}
