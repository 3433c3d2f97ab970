import {
  type ControlDatabase,
  type QueryControl,
  transactControl,
} from '../../control/database.ts';
import { mayUsePasswordOf } from '../../control/password-logins.ts';
import type { Rate } from '../../lib/http/steps/rate-limit/sliding-window.ts';
import type { NotSent } from './mail-dispatcher.ts';
import { linkLifetimes } from './mail-link.ts';
import type { LeasedMail, MailAbout, MailKind } from './mail-queue.ts';
import { dailyRate, isCounted, removeReplacedDeliveries, withdrawnMails } from './mail-requests.ts';
import { removeOldDeliveries, removeUnconfirmed } from './remove-old-deliveries.ts';

/**
 * The mails of a kind that all clients together can cause, as a multiple of those of one
 * client: a client that registers a foreign address must not use up the mails of its owner.
 */
const networkFactor = 4;

// The lock lets no change of the user come between: the mail is chosen for the state in which
// the user is when the mail is stored.
const lockKnown = `
  select id::float8 as id, disabled_at is not null as "isDisabled", confirmed_at is not null as "isConfirmed",
         invited_at is not null as "isInvited",
         exists (select from mail_deliveries m
                  where m.user_id = u.id and m.kind = 'registration' and m.expires_at > now()) as "isRegistering",
         ${mayUsePasswordOf('u')} as "mayUsePassword",
         (select coalesce(json_agg(p.name order by p.name, p.id), '[]')
            from identity_providers p where p.tenant_id = u.tenant_id and p.is_enabled) as providers
    from users u where tenant_id = $1 and email = $2 for no key update`;
/**
 * Inserts an unconfirmed user, with placeholders for password and names: the confirmation sets
 * those of the confirmed registration.
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
         count(*) filter (where about = $3 and ${isCounted('$5')})::int as same,
         count(*) filter (where ${isCounted('$5')})::int as "all",
         count(*) filter (where set_password is null)::int as daily
    from (
      select state, tried_at, settled_at, about, set_password
        from mail_deliveries where user_id = $1 and kind = $2 and id <> $4
       union all
      ${withdrawnMails('$1', ', m.about, m.set_password')} and m.kind = $2) mails
   where ${isCounted('$6')}`;
const setRecipient = `
  update mail_deliveries
     set user_id = $2, address = null, kind = $3, about = $4, expires_at = coalesce(now() + $5::interval, expires_at)
   where id = $1`;
/**
 * Deletes a registration: its sender has chosen the password, which no other mail may confirm.
 */
const dropRegistration = 'delete from registrations where delivery_id = $1';

/** The mails of a kind that an address has got. */
interface Counted {
  /** True if a later one replaces this one. */
  readonly isReplaced: boolean;
  /** Those about the same thing, in the window of the rate. */
  readonly same: number;
  /** All of them, in the window of the rate. */
  readonly all: number;
  /** Those of a day whose link has set no password. */
  readonly daily: number;
}

interface KnownUser {
  readonly id: number;
  readonly isDisabled: boolean;
  readonly isConfirmed: boolean;
  readonly isInvited: boolean;
  /** True while a registration can be confirmed. */
  readonly isRegistering: boolean;
  /** False if the tenant refuses passwords of this person: a link would set none. */
  readonly mayUsePassword: boolean;
  /** The names of the providers of the tenant. */
  readonly providers: readonly string[];
}

/** The mail that an address gets, by the state of its user. */
interface HelpfulMail {
  readonly kind: MailKind;
  readonly about: MailAbout;
  /**
   * The time for which the link is good, as an interval of PostgreSQL; undefined: that of the
   * mail that was asked for.
   */
  readonly lifetime?: string;
}

/**
 * Finds the user with the address that a mail was asked for, or makes the user of an address
 * that was registered. Enters into the delivery the user, and the mail that fits the state of
 * the user (docs/guide/accounts.md has all states). The limit counts mails that were accepted
 * in its window, and mails that may still be accepted: at most `rate.max` of a kind that one
 * client can cause, `networkFactor` times as many that all clients together can, and those of a
 * day.
 */
export function findRecipient(
  control: ControlDatabase,
  mail: LeasedMail,
  rate: Rate,
): Promise<LeasedMail | NotSent> {
  return transactControl(control, async query => {
    const user = await findKnown(query, mail);
    if (!user) return 'unknown';

    const found = await enterUser(query, mail, user, rate);
    await removeOldDeliveries(query);
    // not this user, who has a delivery now
    if (mail.kind === 'registration') await removeUnconfirmed(query);
    return found;
  });
}

/** Returns the user who has the address, and makes one of an address that was registered. */
async function findKnown(
  query: QueryControl,
  { id, kind, tenantId, address }: LeasedMail,
): Promise<KnownUser | undefined> {
  const key = [tenantId, address];
  const [known] = await query<KnownUser>('mails_lock_known', lockKnown, key);
  if (known || kind !== 'registration') return known;

  await query('mails_insert_unconfirmed', insertUnconfirmed, [...key, id]);

  // The user that was added now, or by another request at the same time.
  const [added] = await query<KnownUser>('mails_lock_known', lockKnown, key);
  return added;
}

/**
 * Chooses the mail. A person who was invited keeps the role that the invitation gives, and
 * chooses the password by its link: the password of a registration, which anyone can send, must
 * not become theirs. A person who has registered, and asks for a password, gets a link like
 * that of an invitation, with the lifetime of a reset. A person who may not use a password gets
 * no link that would set one.
 */
function helpfulMail({ kind, about }: LeasedMail, user: KnownUser): HelpfulMail {
  const asked = kind === 'registration' ? kind : 'reset';
  const other: MailAbout = { ...about, asked };

  if (user.isDisabled) {
    return { kind: 'account_notice', about: { ...other, because: 'disabled' }, lifetime: '1 day' };
  }
  if (!user.mayUsePassword && (user.isConfirmed || !user.isInvited)) {
    const { providers } = user;
    return {
      kind: 'account_notice',
      about: { ...other, because: 'provider', providers },
      lifetime: '1 day',
    };
  }
  if (user.isConfirmed) {
    return asked === 'reset'
      ? { kind, about }
      : { kind: 'reset', about: other, lifetime: linkLifetimes.reset };
  }
  if (user.isInvited) {
    return { kind: 'invitation', about: other, lifetime: linkLifetimes.invitation };
  }
  if (asked === 'registration') return { kind, about };
  if (!user.isRegistering) {
    return { kind: 'account_notice', about: { ...other, because: 'expired' }, lifetime: '1 day' };
  }
  return {
    kind: 'invitation',
    about: { ...other, because: 'unconfirmed' },
    lifetime: linkLifetimes.reset,
  };
}

async function enterUser(
  query: QueryControl,
  mail: LeasedMail,
  user: KnownUser,
  rate: Rate,
): Promise<LeasedMail | NotSent> {
  const { kind, about, lifetime } = helpfulMail(mail, user);
  const { id } = mail;
  await removeReplacedDeliveries(query, user.id, { id, kind, about });

  const day = dailyRate(rate);
  const values = [user.id, kind, about, id, rate.windowMs, Math.max(rate.windowMs, day.windowMs)];
  const [counted] = await query<Counted>('mails_count', countMails, values);
  if (counted?.isReplaced) return 'replaced';
  const { same = 0, all = 0, daily = 0 } = counted ?? {};
  if (same >= rate.max || all >= rate.max * networkFactor || daily >= day.max) return 'limited';

  await query('mails_set_recipient', setRecipient, [id, user.id, kind, about, lifetime ?? null]);
  if (mail.kind === 'registration' && kind !== 'registration') {
    await query('mails_drop_registration', dropRegistration, [id]);
  }
  return { ...mail, kind, about, userId: user.id, address: null };
}
