import { type ControlDatabase, type QueryControl, queryControl } from '../../control/database.ts';
import type { Rate } from '../../lib/http/steps/rate-limit/sliding-window.ts';
import { linkLifetimes, newLink } from './mail-link.ts';
import { removeOldDeliveries } from './remove-old-deliveries.ts';

/** The person who asks for a mail to an address, and the request. */
export interface MailRequest {
  readonly tenantId: number;
  /** The address, as `readEmail` returns it. */
  readonly address: string;
  readonly traceId: string;
}

/** The data of a registration, which become those of the user when its link is used. */
export interface RegistrationData {
  readonly passwordHash: string;
  readonly firstName: string;
  readonly lastName: string;
  /**
   * The administrator who registered the person, as `RequestContext.actor`; null: the person,
   * or anyone else.
   */
  readonly actor: string | null;
}

/**
 * Inserts the request without a look-up of the address: the response must not depend on whether
 * somebody has it.
 */
const insertRequest = `
  insert into mail_deliveries (link, tenant_id, address, kind, about, trace_id, expires_at)
  values ($1, $2, $3, $4, $5, $6, now() + $7::interval)`;
const insertReset = `${insertRequest} returning id`;
const insertRegistration = `
  with delivery as (${insertRequest} returning id)
  insert into registrations (delivery_id, password_hash, first_name, last_name, actor)
  select id, $8, $9, $10, $11 from delivery`;

/**
 * Stores the request for a mail with a link for a new password. Takes the same time for every
 * address: a worker looks the address up afterwards.
 */
export async function requestResetMail(
  control: ControlDatabase,
  request: MailRequest,
): Promise<void> {
  const { tenantId, address, traceId } = request;
  const values = [newLink(), tenantId, address, 'reset', {}, traceId, linkLifetimes.reset];
  await queryControl(control, 'mails_request_reset', insertReset, values);
}

/**
 * Stores a registration. A worker then makes a user with its address, and sends a mail. Takes
 * the same time for every address.
 * @param network of the client, whose registrations of one address have a limit
 */
export async function requestRegistrationMail(
  control: ControlDatabase,
  request: MailRequest,
  network: string,
  { passwordHash, firstName, lastName, actor }: RegistrationData,
): Promise<void> {
  const { tenantId, address, traceId } = request;
  await queryControl(control, 'mails_request_registration', insertRegistration, [
    newLink(),
    tenantId,
    address,
    'registration',
    { network },
    traceId,
    linkLifetimes.registration,
    passwordHash,
    firstName,
    lastName,
    actor,
  ]);
}

/**
 * The invitations of a tenant, as a multiple of those to one account: a tenant that starts to
 * use the service invites its people in one go, by default 120 in 15 minutes.
 */
const tenantFactor = 40;

/** Maximum mails of a kind to one address in a day, unless one window allows more. */
const maxDaily = 10;

/**
 * Returns the rate of a day that bounds a rate of mails: otherwise a stranger who asks for as
 * many as each window allows would send 288 of them to an address. A mail whose link has set a
 * password does not count in it: its reader has asked for it.
 */
export function dailyRate({ max }: Rate): Rate {
  return { max: Math.max(maxDaily, max), windowMs: 24 * 3_600_000 };
}

/**
 * SQL: true if a mail counts for the limit of mails: it was accepted in the window, may have
 * been, or may still be. A mail that the mail server has certainly not accepted does not count.
 * @param windowMs a parameter
 */
export function isCounted(windowMs: string): string {
  return `(state = 'waiting' or tried_at is not null and settled_at > now() - ${windowMs}::float8 * interval '1 ms')`;
}

/**
 * SQL: the number of the mails that count, and the milliseconds until the oldest of them leaves
 * the window. A mail that somebody else has asked for does not count here: such mails must not
 * stop an administrator.
 */
const untilOldest = `
  select coalesce(
           extract(epoch from min(settled_at) - now()) * 1000 + $3::float8, least($3::float8, 60000))::float8 as ms,
         count(*)::int as count`;
/** Also counts the mails to the address whose links were withdrawn: see `withdrawLinks`. */
const countUser = `
  ${untilOldest} from (
    select state, tried_at, settled_at from mail_deliveries where user_id = $1 and kind = $2 and about = '{}'
     union all
    ${withdrawnMails('$1')} and m.kind = $2 and m.about = '{}') mails
   where ${isCounted('$3')}`;
const countTenant = `
  ${untilOldest} from mail_deliveries where tenant_id = $1 and kind = $2 and about = '{}' and ${isCounted('$3')}`;
const insertInvitation = `
  insert into mail_deliveries (link, tenant_id, user_id, kind, trace_id, expires_at)
  values ($1, $2, $3, 'invitation', $4, now() + $5::interval)`;
/**
 * Skips deliveries that another transaction has locked, which would wait for this one: such a
 * delivery is found to be replaced when it is tried.
 */
const removeReplaced = `
  delete from mail_deliveries
   where id in (select id from mail_deliveries
                 where user_id = $1 and kind = $2 and about = $3 and state = 'waiting' and tried_at is null
                   and ($4::bigint is null or id < $4) for update skip locked)`;

/**
 * Removes the deliveries that a later one replaces: those that wait, and have certainly not
 * arrived.
 */
export async function removeReplacedDeliveries(
  query: QueryControl,
  userId: number,
  delivery: { readonly id: number | null; readonly kind: string; readonly about: object },
): Promise<void> {
  await query('mails_remove_replaced', removeReplaced, [
    userId,
    delivery.kind,
    delivery.about,
    delivery.id,
  ]);
}

/**
 * SQL: the mails to the address of a user that may have arrived, and whose links were withdrawn
 * since. A mail without a user that waits is one that nobody has looked up yet.
 * @param user a parameter, the id of the user
 * @param more further columns
 */
export function withdrawnMails(user: string, more = ''): string {
  return `
    select m.state, m.tried_at, m.settled_at${more} from mail_deliveries m join users u on u.id = ${user}
     where m.tenant_id = u.tenant_id and m.user_id is null and m.address = u.email and m.state <> 'waiting'`;
}

/**
 * Adds the mail of an invitation, in the transaction that makes the user. It replaces an
 * invitation that waits.
 * @param rate of mails to one account; a tenant has `tenantFactor` times as many
 * @returns after how many milliseconds a further invitation may be sent; 0 = this one was added
 */
export async function addInvitationMail(
  query: QueryControl,
  user: { readonly id: number; readonly tenantId: number },
  traceId: string,
  rate: Rate,
): Promise<number> {
  await removeReplacedDeliveries(query, user.id, { id: null, kind: 'invitation', about: {} });

  const ofUser = { name: 'mails_count_user', text: countUser, of: user.id };
  const limits = [
    { ...ofUser, ...rate },
    { ...ofUser, ...dailyRate(rate) },
    {
      name: 'mails_count_tenant',
      text: countTenant,
      of: user.tenantId,
      ...rate,
      max: rate.max * tenantFactor,
    },
  ];
  for (const { name, text, of, max, windowMs } of limits) {
    const [counted] = await query<{ ms: number; count: number }>(name, text, [
      of,
      'invitation',
      windowMs,
    ]);
    if (counted && counted.count >= max) return Math.max(counted.ms, 1);
  }

  const values = [newLink(), user.tenantId, user.id, traceId, linkLifetimes.invitation];
  await query('mails_insert_invitation', insertInvitation, values);
  await removeOldDeliveries(query);
  return 0;
}

/** A webhook that the service has disabled. */
export interface DisabledWebhook {
  /** Host and port alone: the rest of a URL may contain a secret. */
  readonly host: string;
  readonly reason: 'gone' | 'failing' | 'rights';
}

/**
 * Maximum such mails to one person in 24 hours: one about each webhook that a tenant may have,
 * however often it is deleted and made again.
 */
const maxNotices = 20;
/** The ids in the column `link` are not used: these mails have no link. */
const insertNotices = `
  insert into mail_deliveries (link, tenant_id, user_id, kind, about, expires_at)
  select gen_random_uuid(), u.tenant_id, u.id, 'webhook_disabled', $2, now() + interval '1 day'
    from users u join roles r on r.id = role_id
   where u.tenant_id = $1 and u.kind = 'person' and 'settings.write' = any (permissions) and scope = 'All'
     and disabled_at is null and confirmed_at is not null
     and (select count(*) from mail_deliveries m
           where m.user_id = u.id and kind = 'webhook_disabled' and m.created_at > now() - interval '1 day') < ${maxNotices}
   order by u.id limit 50`;

/**
 * Adds a mail to each person who manages the settings of a tenant: the service has disabled a
 * webhook. A person who has got as many as a day allows gets none.
 */
export async function addWebhookMails(
  control: ControlDatabase,
  tenantId: number,
  { host, reason }: DisabledWebhook,
): Promise<void> {
  await queryControl(control, 'mails_insert_notices', insertNotices, [tenantId, { host, reason }]);
}
