import { createHash } from 'node:crypto';
import {
  type ControlDatabase,
  type QueryControl,
  queryControl,
} from '../../../control/database.ts';
import { addedBy, requireNoFormerBuild } from '../../../control/former-builds.ts';
import { mayUsePasswordOf } from '../../../control/password-logins.ts';
import type { TenantRecord } from '../../../control/records.ts';
import type { Scope } from '../../../control/scopes.ts';
import type { IdTokenClaims } from '../../../lib/oidc/id-token.ts';
import type { Provider } from '../../../lib/oidc/provider.ts';
import { problem } from '../../../lib/problems.ts';
import type { CodeOwner } from '../factors/check-code.ts';
import { noPassword } from '../passwords.ts';

/** Maximum identities of a person. */
const maxIdentities = 10;

/** A provider that is enabled. */
export interface StoredProvider extends Provider {
  readonly id: number;
  readonly name: string;
  /** The values of `amr` that count as a second factor; empty: none; null: every sign-in does. */
  readonly secondFactor: readonly string[] | null;
  /** The rule of accounts that are made at the first login; null: none are. */
  readonly rule: AccountRule | null;
}

/** The rule by which a person whom a provider knows gets an account. */
export interface AccountRule {
  readonly roleId: number;
  readonly scope: Scope;
  readonly entityId: number | null;
  /** When the entity was created, in ISO 8601 with microseconds. */
  readonly entitySince: string | null;
  readonly domains: readonly string[];
  readonly claims: Readonly<Record<string, unknown>>;
  /** The permissions of who has stored the rule. */
  readonly permissions: readonly string[];
}

/** SQL of the `AccountRule` of a provider. */
export const accountRule = `
  case when creates_role_id is not null then json_build_object(
    'roleId', creates_role_id, 'scope', creates_scope, 'entityId', creates_entity_id,
    'entitySince', creates_entity_since, 'domains', creates_domains, 'claims', creates_claims,
    'permissions', creates_permissions) end`;
const providerByIssuer = `
  select id::float8 as id, guid, name, issuer, client_ids as "clientIds", second_factor as "secondFactor",
         ${accountRule} as rule
    from identity_providers where tenant_id = $1 and issuer = $2 and is_enabled`;

/** Returns the enabled provider of a tenant that has an issuer; undefined: there is none. */
export async function findProviderByIssuer(
  control: ControlDatabase,
  { id, guid: tenantGuid }: Pick<TenantRecord, 'id' | 'guid'>,
  issuer: string,
): Promise<StoredProvider | undefined> {
  const [found] = await queryControl<Omit<StoredProvider, 'tenantGuid'>>(
    control,
    'provider_by_issuer',
    providerByIssuer,
    [id, issuer],
  );

  return found && { ...found, tenantGuid };
}

/** The identity that a person has at a provider. */
export interface FoundIdentity {
  readonly id: number;
  readonly userId: number;
  /** True while it is refused, until its person confirms it. */
  readonly isHeld: boolean;
}

const identityBySubject = `
  select id::float8 as id, user_id::float8 as "userId", held_at is not null as "isHeld"
    from identities where tenant_id = $1 and provider_id = $2 and subject = $3`;

/** Finds an identity by its provider and `sub`, and by nothing else. */
export async function findIdentity(
  control: ControlDatabase,
  tenantId: number,
  providerId: number,
  subject: string,
): Promise<FoundIdentity | undefined> {
  const [found] = await queryControl<FoundIdentity>(
    control,
    'identity_by_subject',
    identityBySubject,
    [tenantId, providerId, subject],
  );

  return found;
}

/** Finds an identity as `findIdentity` does, in a transaction. */
export async function findIdentityWithin(
  query: QueryControl,
  tenantId: number,
  providerId: number,
  subject: string,
): Promise<FoundIdentity | undefined> {
  const values = [tenantId, providerId, subject];

  return (await query<FoundIdentity>('identity_by_subject', identityBySubject, values))[0];
}

/** Rows removed at a time. A use adds only one, so the table does not grow. */
const batch = 100;
const insertUsed = `
  with expired as (
    delete from used_id_tokens where ctid = any (array(
      select ctid from used_id_tokens where expires_at < now()
       order by expires_at limit ${batch} for update skip locked)))
  insert into used_id_tokens (hash, expires_at)
  values ($1, to_timestamp($2::float8) + interval '1 minute')
  on conflict do nothing returning hash`;

/**
 * Uses a token in the transaction of what it permits: once in the whole installation, at two
 * processes at once and at two tenants too.
 * @returns false if it was used already
 */
export async function takeIdToken(
  query: QueryControl,
  { hash, endsAt }: Pick<IdTokenClaims, 'hash' | 'endsAt'>,
): Promise<boolean> {
  return (await query('use_id_token', insertUsed, [hash, endsAt])).length > 0;
}

/** The time of a logout for which its person is remembered: no older ID token is good then. */
const rememberedFor = "interval '11 minutes'";
const forgetLogout = `
  delete from used_id_tokens
   where hash = $1 and expires_at < to_timestamp($2::float8) + ${rememberedFor}`;
const insertLogout = `
  insert into used_id_tokens (hash, expires_at)
  values ($1, to_timestamp($2::float8) + ${rememberedFor}) on conflict do nothing`;
const logoutSince = `
  select from used_id_tokens
   where hash = $1 and expires_at >= to_timestamp($2::float8) + ${rememberedFor}`;

/** A person at a provider, and the time of a token, in seconds since 1970. */
type TokenOfPerson = Pick<IdTokenClaims, 'sub' | 'issuedAt'>;

/**
 * Remembers the logout of a person at a provider while ID tokens of before may be good: one
 * whom nobody knows here yet could get an account by them. It stands among the used tokens.
 */
export async function rememberLogout(
  query: QueryControl,
  provider: Pick<Provider, 'guid'>,
  { sub, issuedAt }: TokenOfPerson,
): Promise<void> {
  const values = [hashOfPerson(provider, sub), issuedAt];
  await query('forget_logout', forgetLogout, values);
  await query('insert_logout', insertLogout, values);
}

/** True if the person of an ID token was logged out at the provider since it was issued. */
export async function isLoggedOut(
  query: QueryControl,
  provider: Pick<Provider, 'guid'>,
  { sub, issuedAt }: TokenOfPerson,
): Promise<boolean> {
  const values = [hashOfPerson(provider, sub), issuedAt];

  return (await query('logout_since', logoutSince, values)).length > 0;
}

function hashOfPerson({ guid }: Pick<Provider, 'guid'>, sub: string): Buffer {
  return createHash('sha256').update(`logged out ${guid} ${sub}`).digest();
}

/** An identity that is linked to an account. */
export interface NewIdentity {
  readonly tenantId: number;
  readonly userId: number;
  readonly providerId: number;
  /** `sub` of its ID token. */
  readonly subject: string;
  /** The address that the provider has named; null: none. */
  readonly email: string | null;
  /** True if the account is made with it. */
  readonly isByRule?: boolean;
}

const insertIdentity = `
  insert into identities (tenant_id, user_id, provider_id, subject, email, is_by_rule)
  values ($1, $2, $3, $4, $5, $6)
  on conflict on constraint identities_provider_id_subject_unique do nothing
  returning id::float8 as id`;
const countIdentities = `
  select count(*)::int as count from identities where tenant_id = $1 and user_id = $2`;

/**
 * Links an identity to an account.
 * @param query of a transaction that has locked the user, and has taken the ID token
 * @returns its id; undefined when an account of the tenant has it already
 * @throws {Problem} `limit_reached`; `migration_pending` while a build runs that knows no
 *   identities
 */
export async function linkIdentity(
  query: QueryControl,
  { tenantId, userId, providerId, subject, email, isByRule = false }: NewIdentity,
): Promise<number | undefined> {
  await requireNoFormerBuild(query, addedBy.identityProviders);
  const [counted] = await query<{ count: number }>('count_identities', countIdentities, [
    tenantId,
    userId,
  ]);
  if ((counted?.count ?? 0) >= maxIdentities) {
    throw problem('limit_reached', {
      detail: `An account has at most ${maxIdentities} identities.`,
    });
  }

  const [added] = await query<{ id: number }>('insert_identity', insertIdentity, [
    tenantId,
    userId,
    providerId,
    subject,
    email,
    isByRule,
  ]);
  return added?.id;
}

/** An identity as its person sees it. */
export interface IdentityRow {
  readonly id: number;
  /** The name of the provider. */
  readonly provider: string;
  readonly issuer: string;
  readonly email: string | null;
  /** In ISO 8601. */
  readonly createdAt: string;
  /** In ISO 8601; null if never. */
  readonly lastUsedAt: string | null;
  readonly isHeld: boolean;
}

const listed = `
  select i.id::float8 as id, p.name as provider, p.issuer, i.email, i.held_at is not null as "isHeld",
         to_json(i.created_at) #>> '{}' as "createdAt", to_json(i.last_used_at) #>> '{}' as "lastUsedAt"
    from identities i join identity_providers p on p.tenant_id = i.tenant_id and p.id = i.provider_id
   where i.tenant_id = $1 and i.user_id = $2
   order by i.id`;

type Owner = Pick<CodeOwner, 'tenantId' | 'userId'>;

/** Lists the identities of a person, the oldest first. */
export function listIdentities(
  control: ControlDatabase,
  { tenantId, userId }: Owner,
): Promise<IdentityRow[]> {
  return queryControl<IdentityRow>(control, 'list_identities', listed, [tenantId, userId]);
}

const confirmOne = `
  update identities set held_at = null
   where id = $1 and tenant_id = $2 and user_id = $3 returning id`;

/**
 * Makes an identity good again that a new password by a link has held.
 * @param query of a transaction in which the person has proved the new password
 * @throws {Problem} `not_found`
 */
export async function confirmIdentity(
  query: QueryControl,
  { tenantId, userId }: Owner,
  id: number,
): Promise<void> {
  const confirmed = await query('confirm_identity', confirmOne, [id, tenantId, userId]);
  if (confirmed.length === 0) throw problem('not_found');
}

const unlinkOne = `
  delete from identities where id = $1 and tenant_id = $2 and user_id = $3 returning id`;
const otherWays = `
  select from users u
   where u.id = $2 and u.tenant_id = $1
     and (${mayUsePasswordOf('u')} and (
         u.password_hash <> '${noPassword}'
         or exists (select from factors f where f.tenant_id = $1 and f.user_id = $2
                       and f.kind = 'passkey' and f.confirmed_at is not null and f.held_at is null))
       or exists (
         select from identities i
           join identity_providers p on p.tenant_id = i.tenant_id and p.id = i.provider_id
          where i.tenant_id = $1 and i.user_id = $2 and i.held_at is null and p.is_enabled))`;

/**
 * Removes an identity of a person. A trigger ends the sessions that it has opened.
 * @param query of a transaction that has locked the user
 * @throws {Problem} `not_found`; `wrong_state` for the last way to log in
 */
export async function unlinkIdentity(
  query: QueryControl,
  { tenantId, userId }: Owner,
  id: number,
): Promise<void> {
  const removed = await query('unlink_identity', unlinkOne, [id, tenantId, userId]);
  if (removed.length === 0) throw problem('not_found');
  if ((await query('other_ways', otherWays, [tenantId, userId])).length > 0) return;

  throw problem('wrong_state', {
    detail:
      'This is your last way to log in. Ask for a mail to set a password first ' +
      '(/api/v1/auth/reset-password), or link another identity.',
  });
}
