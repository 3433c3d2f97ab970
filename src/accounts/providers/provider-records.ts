import type { QueryControl } from '../../control/database.ts';
import { addedBy, requireNoFormerBuild } from '../../control/former-builds.ts';
import type { TenantRecord } from '../../control/records.ts';
import type { Precondition } from '../../lib/http/response/representation.ts';
import { refusedIssuer } from '../../lib/oidc/issuer.ts';
import { problem } from '../../lib/problems.ts';
import type { FieldError, FieldErrors } from '../../lib/runtime/field-error.ts';
import { requireMayManage } from '../../tenancy/permission-rules.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { requireVerified } from '../auth/verify.ts';
import type { HeldEntity, PeopleTransaction } from '../people/change-people.ts';
import { findRole } from '../people/role-records.ts';
import { viewOf } from '../people/user-statements.ts';
import {
  maxProviders,
  type NewProviderFields,
  type ProviderFields,
  type ProviderRule,
  type ProviderView,
  providerById,
  storedFactor,
} from './provider-table.ts';

const permissionsOfRoles = `
  select distinct unnest(permissions) as permission from roles where tenant_id = $1`;

/**
 * Requires that the caller may decide by which providers people log in: whoever does can become
 * each of them, so the caller has every permission that any role of the tenant has, and has
 * proved to be the person within the last five minutes.
 * @throws {Problem} `forbidden`, `verification_required`
 */
export async function requireMayManageProviders(
  { query, permissions }: PeopleTransaction,
  { caller, tenant }: Pick<RequestContext, 'caller' | 'tenant'>,
): Promise<void> {
  const granted = await query<{ permission: string }>('permissions_of_roles', permissionsOfRoles, [
    tenant.id,
  ]);
  requireMayManage(
    granted.map(({ permission }) => permission),
    permissions,
  );
  await requireVerified(query, caller);
}

/** The fields of a provider that depend on others; without those that the contract refuses. */
interface CheckedFields {
  readonly Issuer?: string | undefined;
  readonly CreatesUsers?: Pick<ProviderRule, 'Role' | 'Claims'> | null | undefined;
}

const providerWithIssuer = `
  select from identity_providers where tenant_id = $1 and issuer = $2`;

/**
 * Checks the fields of a provider together.
 * @param errors of other fields, which the caller has found
 * @param issuer of a provider that exists
 * @returns the id of the role of its rule; null without a rule
 * @throws {Problem} `validation_failed`, which has the error of each field; `duplicate`
 */
export async function requireValidProvider(
  { query }: PeopleTransaction,
  { trustedProviders }: Pick<AuthServices, 'trustedProviders'>,
  tenant: TenantRecord,
  { Issuer, CreatesUsers }: CheckedFields,
  entity: HeldEntity,
  errors: FieldErrors = {},
  issuer = Issuer,
): Promise<number | null> {
  const all: FieldErrors = { ...errors };
  const refusal = Issuer && refusedIssuer(Issuer, tenant.guid, trustedProviders);
  if (refusal) all.Issuer = [{ message: refusal, code: 'wrong_format' }];
  if (entity.errors.EntityId) all['CreatesUsers[EntityId]'] = entity.errors.EntityId;

  const role = CreatesUsers ? await findRole(query, tenant.id, CreatesUsers.Role) : undefined;
  if (CreatesUsers && !role) {
    all['CreatesUsers[Role]'] = [{ message: 'is not a role', code: 'unknown_reference' }];
  }
  if (CreatesUsers && isOpenToAll(issuer) && Object.keys(CreatesUsers.Claims).length === 0) {
    all['CreatesUsers[Claims]'] = [
      {
        message: 'must have a claim that only your people have: anybody can have an account there',
        code: 'required',
      },
    ];
  }
  const isTaken =
    Issuer !== undefined &&
    (await query('provider_with_issuer', providerWithIssuer, [tenant.id, Issuer])).length > 0;
  if (isTaken && Object.keys(all).length === 0) {
    throw problem('duplicate', { errors: { Issuer: [taken] } });
  }
  if (isTaken) all.Issuer ??= [taken];
  if (Object.keys(all).length > 0) throw problem('validation_failed', { errors: all });

  return role?.Id ?? null;
}

const taken: FieldError = { message: 'is taken', code: 'taken' };

/** The issuers at which anybody can have an account, by their documentation. */
const openIssuers = [
  'https://accounts.google.com',
  'https://appleid.apple.com',
  'https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0',
  'https://www.facebook.com',
  'https://access.line.me',
  'https://www.linkedin.com/oauth',
  'https://slack.com',
  'https://gitlab.com',
];

function isOpenToAll(issuer: string | undefined): boolean {
  return openIssuers.some(open => issuer === open || issuer === `${open}/`);
}

const countProviders = `
  select count(*)::int as count from identity_providers where tenant_id = $1`;
const ruleColumns = `
  creates_role_id, creates_scope, creates_entity_id, creates_entity_since, creates_domains,
  creates_claims, creates_permissions`;
const insertProvider = `
  insert into identity_providers (
    tenant_id, name, client_ids, is_enabled, second_factor, session_hours, ${ruleColumns}, issuer)
  values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::jsonb, $13, $14)
  returning id::float8 as id`;

/**
 * Adds a provider, which the caller may manage.
 * @returns its id
 * @throws {Problem} `limit_reached`; `migration_pending` while a build runs that knows no
 *   providers; those of `requireValidProvider`
 */
export async function addProvider(
  transaction: PeopleTransaction,
  services: Pick<AuthServices, 'trustedProviders'>,
  tenant: TenantRecord,
  fields: NewProviderFields,
  entity: HeldEntity,
): Promise<number> {
  const { query } = transaction;
  await requireNoFormerBuild(query, addedBy.identityProviders);
  const roleId = await requireValidProvider(transaction, services, tenant, fields, entity);
  const [counted] = await query<{ count: number }>('count_providers', countProviders, [tenant.id]);
  if ((counted?.count ?? 0) >= maxProviders) {
    throw problem('limit_reached', { detail: `A tenant has at most ${maxProviders} providers.` });
  }

  const [added] = await query<{ id: number }>('insert_provider', insertProvider, [
    tenant.id,
    ...valuesOf(transaction, fields, roleId, entity),
    fields.Issuer,
  ]);
  return added?.id ?? 0;
}

const updateProvider = `
  update identity_providers
     set name = $2, client_ids = $3, is_enabled = $4, second_factor = $5, session_hours = $6,
         (${ruleColumns}) = ($7, $8, $9, $10, $11, $12::jsonb, $13)
   where id = $1`;

const forgetFactors = `
  update sessions set idp_is_factor = false
   where idp_is_factor and identity_id in (
     select id from identities where tenant_id = $1 and provider_id = $2)`;

/**
 * Replaces the fields of a provider, which the caller may manage. A provider that is disabled
 * ends the sessions that were opened by it: triggers do it, and let the administrators know.
 * With a stricter `SecondFactor`, its open sessions have no second factor any more: nobody knows
 * which of them would have one by the new rule.
 * @throws {Problem} `migration_pending` while a build runs that knows no providers; those of
 *   `requireValidProvider`
 */
export async function replaceProvider(
  transaction: PeopleTransaction,
  services: Pick<AuthServices, 'trustedProviders'>,
  tenant: TenantRecord,
  { Id, Issuer, SecondFactor }: ProviderView,
  fields: ProviderFields,
  entity: HeldEntity,
): Promise<void> {
  await requireNoFormerBuild(transaction.query, addedBy.identityProviders);
  const roleId = await requireValidProvider(
    transaction,
    services,
    tenant,
    fields,
    entity,
    {},
    Issuer,
  );
  await transaction.query('update_provider', updateProvider, [
    Id,
    ...valuesOf(transaction, fields, roleId, entity),
  ]);
  // After the lock of the row: a login by the former rule has ended, or sees the new one.
  if (isStricter(storedFactor(fields.SecondFactor), storedFactor(SecondFactor))) {
    await transaction.query('forget_factors', forgetFactors, [tenant.id, Id]);
  }
}

/**
 * True if a sign-in that counted as a second factor may not do so by another rule.
 * @param rule the values of `amr` that count, as `storedFactor` returns them
 */
function isStricter(rule: string[] | null, former: string[] | null): boolean {
  if (rule === null) return false;

  return former === null || former.some(value => !rule.includes(value));
}

/** Returns the values that administrators decide, in the order of the statements. */
function valuesOf(
  { permissions }: PeopleTransaction,
  { Name, ClientIds, IsEnabled, SecondFactor, SessionHours, CreatesUsers }: ProviderFields,
  roleId: number | null,
  entity: HeldEntity,
): unknown[] {
  const rule = CreatesUsers
    ? [
        roleId,
        CreatesUsers.Scope,
        CreatesUsers.EntityId,
        entity.since,
        [...new Set(CreatesUsers.Domains)],
        JSON.stringify(CreatesUsers.Claims),
        [...permissions],
      ]
    : Array.from({ length: 7 }, () => null);

  return [
    Name,
    [...new Set(ClientIds)],
    IsEnabled,
    storedFactor(SecondFactor),
    SessionHours,
    ...rule,
  ];
}

/** @throws {Problem} `not_found`, `precondition_failed` */
export async function findProvider(
  query: QueryControl,
  tenantId: number,
  id: number | undefined,
  precondition?: Precondition,
): Promise<ProviderView> {
  const { name, text, values } = providerById(tenantId, id ?? 0);
  const provider = viewOf<ProviderView>(await query(name, text, values));
  if (!provider) throw problem('not_found');

  precondition?.(provider);
  return provider;
}

const removeOne = 'delete from identity_providers where id = $1';

/** Removes a provider with its identities, and so ends the sessions that were opened by it. */
export async function removeProvider(query: QueryControl, { Id }: ProviderView): Promise<void> {
  await query('remove_provider', removeOne, [Id]);
}
