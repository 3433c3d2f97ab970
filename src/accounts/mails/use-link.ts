import { type ControlDatabase, type QueryControl, queryControl } from '../../control/database.ts';
import type { TenantRecord } from '../../control/records.ts';
import { digestOfHash, hasFactor } from '../../control/second-factor.ts';
import type { MacVerifier } from '../../control/secret-box.ts';
import { isTokenOf, type LinkKind, type ParsedLinkToken, parseLinkToken } from './mail-link.ts';

/** A link that is good, and the user to whom it was sent. */
export interface GoodLink {
  /** The id of the delivery of the link. */
  readonly id: number;
  readonly kind: LinkKind;
  readonly userId: number;
  readonly userGuid: string;
  readonly email: string;
  readonly firstName: string;
  readonly lastName: string;
  /** True if the user has a second factor. */
  readonly hasFactor: boolean;
}

export type LinkTenant = Pick<TenantRecord, 'id' | 'guid'>;

/**
 * SQL: a link is good while its delivery is there, unused and not expired, and no later one of
 * its user and kind may have arrived. Registrations do not replace each other: a stranger who
 * registers an address must not make the link of its owner void.
 */
const isGood = `
  m.expires_at > now() and m.used_at is null and u.disabled_at is null
  and case m.kind
        when 'reset' then u.confirmed_at is not null
        else u.confirmed_at is null
      end
  and (m.kind = 'registration' or not exists (
    select from mail_deliveries later
     where later.user_id = m.user_id and later.kind = m.kind and later.id > m.id and later.tried_at is not null))`;

/** A link that was sent, and its state. */
export interface SentLink extends GoodLink {
  /**
   * `ended`: a later mail is in its place, or the account is not in the state for it any more.
   */
  readonly state: 'good' | 'used' | 'expired' | 'ended';
  /**
   * The seconds since the link, or another one of its user and kind, was used; null: none was
   * used.
   */
  readonly usedSecondsAgo: number | null;
  /**
   * The password hash that this link has set, while it is the present one of the user; null: it
   * has set none, or there is a later one.
   */
  readonly setHash: string | null;
  readonly isDisabled: boolean;
}

const sentLink = `
  select m.id::float8 as id, m.kind, u.id::float8 as "userId", u.guid as "userGuid", u.email,
         u.first_name as "firstName", u.last_name as "lastName", ${hasFactor('u')} as "hasFactor",
         case when m.set_password = ${digestOfHash('u.password_hash')} then u.password_hash end as "setHash",
         u.disabled_at is not null as "isDisabled",
         extract(epoch from now() - m.used_at)::float8 as "usedSecondsAgo",
         case when ${isGood} then 'good'
              when m.used_at is not null then 'used'
              when m.expires_at <= now() then 'expired'
              else 'ended' end as state
    from mail_deliveries m join users u on u.id = m.user_id
   where m.link = $1 and m.tenant_id = $2 and m.kind = any ($3::text[])`;
const goodLink = `
  select m.id::float8 as id, m.kind, u.id::float8 as "userId", u.guid as "userGuid", u.email,
         u.first_name as "firstName", u.last_name as "lastName", ${hasFactor('u')} as "hasFactor"
    from mail_deliveries m join users u on u.id = m.user_id
   where m.link = $1 and m.tenant_id = $2 and m.kind = any ($3::text[]) and ${isGood}`;
/** Locks the user before the delivery, as every statement does that makes links void. */
const lockUserOfLink = `
  select from users
   where id = (select user_id from mail_deliveries where link = $1 and tenant_id = $2)
     for no key update`;
const removeWaiting = `
  delete from mail_deliveries where user_id = $1 and kind = $2 and state = 'waiting' and id <> $3`;
/**
 * Marks a link as used, and its mail as sent: a link that somebody has followed has arrived,
 * whatever the mail server has reported.
 */
const markUsed = `
  update mail_deliveries
     set used_at = now(),
         state = case id when $3 then 'sent' else state end,
         tried_at = case id when $3 then coalesce(tried_at, now()) else tried_at end,
         settled_at = coalesce(settled_at, now())
   where user_id = $1 and kind = $2 and used_at is null`;

/**
 * Finds the link that a token opens, and does not use it. Only a reader of the mail has the
 * token, and so learns the state of the link.
 * @returns undefined for a link that is withdrawn, or of another tenant or kind, and for a
 *   token of no link
 */
export async function findLink(
  control: ControlDatabase,
  secrets: MacVerifier,
  tenant: LinkTenant,
  kinds: readonly LinkKind[],
  token: string,
): Promise<SentLink | undefined> {
  const parsed = parseLinkToken(token);
  if (!parsed) return undefined;

  const [found] = await queryControl<SentLink>(control, 'sent_link', sentLink, [
    parsed.link,
    tenant.id,
    kinds,
  ]);
  return isGenuine(secrets, tenant, parsed, found) ? found : undefined;
}

/**
 * Uses the link that a token opens: this link, and all others of its kind and user, are void
 * from now on. Locks the user.
 * @returns undefined for a link that is not good, and for a token of no link
 */
export async function useLink(
  query: QueryControl,
  secrets: MacVerifier,
  tenant: LinkTenant,
  kinds: readonly LinkKind[],
  token: string,
): Promise<GoodLink | undefined> {
  const parsed = parseLinkToken(token);
  if (!parsed) return undefined;

  await query('lock_user_of_link', lockUserOfLink, [parsed.link, tenant.id]);
  const link = await readLink(query, secrets, tenant, kinds, parsed);
  if (!link) return undefined;

  const { userId, kind, id } = link;
  await query('mails_remove_waiting', removeWaiting, [userId, kind, id]);
  await query('mails_mark_used', markUsed, [userId, kind, id]);
  return link;
}

const markSetPassword = `update mail_deliveries set set_password = ${digestOfHash('$2::text')} where id = $1`;

/** Records the password hash that a link has set, in the transaction that sets it. */
export async function recordSetPassword(
  query: QueryControl,
  link: GoodLink,
  hash: string,
): Promise<void> {
  await query('mails_mark_set_password', markSetPassword, [link.id, hash]);
}

async function readLink(
  query: QueryControl,
  secrets: MacVerifier,
  tenant: LinkTenant,
  kinds: readonly LinkKind[],
  parsed: ParsedLinkToken,
): Promise<GoodLink | undefined> {
  const [found] = await query<GoodLink>('good_link', goodLink, [parsed.link, tenant.id, kinds]);
  return isGenuine(secrets, tenant, parsed, found) ? found : undefined;
}

function isGenuine(
  secrets: MacVerifier,
  tenant: LinkTenant,
  parsed: ParsedLinkToken,
  found: GoodLink | undefined,
): boolean {
  return (
    found !== undefined &&
    isTokenOf(secrets, parsed, {
      link: parsed.link,
      kind: found.kind,
      tenantGuid: tenant.guid,
      userGuid: found.userGuid,
    })
  );
}

/**
 * Removes the mails of a user that have certainly not arrived. Mails that may have arrived,
 * also by an attempt that is running, are not tried again; they lose the user, and so their
 * links, and keep the address, for the limit of mails. Otherwise a person who corrects or
 * withdraws invitations could send as many as they like. Because of the lock, an attempt begins
 * before this statement or not at all.
 */
const withdraw = `
  with withdrawn as (
    select m.id, m.tried_at is not null as may_have_arrived, u.email
      from mail_deliveries m join users u on u.id = m.user_id
     where m.user_id = $1 and ($2::text is null or m.kind = $2) and m.id is distinct from $3
       for update of m),
  removed as (
    delete from mail_deliveries where id in (select id from withdrawn where not may_have_arrived)),
  forgotten as (
    delete from registrations where delivery_id in (select id from withdrawn))
  update mail_deliveries m
     set user_id = null, address = w.email, settled_at = coalesce(settled_at, now()),
         state = case state when 'waiting' then 'refused' else state end,
         reason = case state when 'waiting' then 'its link was withdrawn' else reason end
    from withdrawn w where m.id = w.id and may_have_arrived`;

/**
 * Makes every link void that a user has received, or will receive by a mail that exists
 * already. Run it before the address of the user changes, and before the user is removed.
 */
export async function withdrawLinks(query: QueryControl, userId: number): Promise<void> {
  await query('withdraw_links', withdraw, [userId, null, null]);
}

/**
 * Makes every link void that confirms a registration of a user.
 * @param usedId of the delivery whose link was used, which stays
 */
export async function withdrawRegistrationsOf(
  query: QueryControl,
  userId: number,
  usedId: number | null = null,
): Promise<void> {
  await query('withdraw_links', withdraw, [userId, 'registration', usedId]);
}
