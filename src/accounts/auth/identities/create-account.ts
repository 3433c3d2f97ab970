import { isDeepStrictEqual } from 'node:util';
import { type QueryControl, setActor, transactControl } from '../../../control/database.ts';
import { addedBy, requireNoFormerBuild } from '../../../control/former-builds.ts';
import { readEmail } from '../../../lib/http/request/email.ts';
import { lengths, text } from '../../../lib/http/request/fields.ts';
import type { IdTokenClaims } from '../../../lib/oidc/id-token.ts';
import { Entity } from '../../../sales/resources/entity.ts';
import { isSameEntity } from '../../../tenancy/own-entity.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import { withdrawLinks } from '../../mails/use-link.ts';
import type { AuthServices } from '../auth-services.ts';
import { noPassword } from '../passwords.ts';
import {
  type CheckedIdToken,
  invalidIdToken,
  refuseIdToken,
  requireLoggedIn,
} from './check-id-token.ts';
import {
  type AccountRule,
  accountRule,
  findIdentityWithin,
  linkIdentity,
  type StoredProvider,
} from './identity-store.ts';

/** Maximum accounts that one provider makes in an hour. */
const maxPerHour = 100;

// Locked, so that accounts of one provider are made one after the other, by the rule as it is.
const lockProvider = `
  select (select count(*)::int from identities i
           where i.tenant_id = p.tenant_id and i.provider_id = p.id and i.is_by_rule
             and i.created_at > now() - interval '1 hour') as made,
         (select r.permissions <@ p.creates_permissions from roles r where r.id = p.creates_role_id) as "isWithin",
         ${accountRule} as rule
    from identity_providers p
   where p.id = $1 and p.tenant_id = $2 and p.is_enabled and p.creates_role_id = $3
     for no key update of p`;
// A change of the role waits, or was made before.
const lockRole = 'select from roles where id = $1 for share';
const otherWithAddress = `
  select id::float8 as id, confirmed_at is null and invited_at is null and disabled_at is null as "isRegistration"
    from users where tenant_id = $1 and email = $2`;
const removeRegistration = `
  delete from users where id = $1 and confirmed_at is null and invited_at is null`;
const insertUser = `
  insert into users (tenant_id, email, password_hash, first_name, last_name, role_id, scope, entity_id,
                     entity_since, confirmed_at)
  values ($1, $2, '${noPassword}', $3, $4, $5, $6, $7, $8, now())
  on conflict (tenant_id, email) do nothing returning id::float8 as id, guid as "userGuid"`;

/**
 * Makes the account of a person whom a provider knows, if its rule says so: the address is
 * verified there and of a domain of the rule, each claim of the rule is equal, no account has
 * the address, and the role has no permission that the maker of the rule lacked. Links the
 * identity. The login is another transaction.
 * @returns the id of the user, also of one whom another sign-in of the person has made meanwhile
 * @throws {Problem} `invalid_id_token` otherwise; of an address that an account has, with the
 *   way to link it. `migration_pending`
 */
export async function createAccount(
  services: Pick<AuthServices, 'control' | 'log'>,
  context: RequestContext,
  checked: CheckedIdToken,
): Promise<number> {
  const { provider, claims } = checked;
  const { rule } = provider;
  const reject = (reason: Parameters<typeof refuseIdToken>[2]) =>
    refuseIdToken(services, context, reason, provider);
  if (!rule) throw reject('unknown_person');

  const { address } = readEmail(claims.email ?? '');
  if (address === undefined || !claims.emailVerified) throw reject('email_not_verified');
  if (!rule.domains.includes(address.slice(address.lastIndexOf('@') + 1))) {
    throw reject('other_domain');
  }
  if (!hasClaims(claims, rule)) throw reject('other_claims');
  if (!(await isEntityThere(context, rule))) throw reject('entity_gone');

  const { ipAddress, traceId } = context.origin;
  const person = { address, ...namesOf(claims, address) };
  const result = await transactControl(services.control, async query => {
    await requireNoFormerBuild(query, addedBy.identityProviders);
    await requireLoggedIn(query, services, context, checked);
    await setActor(query, JSON.stringify({ ipAddress, traceId }));

    return insertAccount(query, context, provider, rule, claims.sub, person);
  });
  if (typeof result === 'number') return result;

  const problem = reject(result);
  throw result === 'address_taken' ? invalidIdToken(linkDetail) : problem;
}

const linkDetail =
  'An account with this address exists already. Log in to it, and link this sign-in to it ' +
  '(POST /api/v1/auth/identities).';

interface NewPerson {
  readonly address: string;
  readonly firstName: string;
  readonly lastName: string;
}

async function insertAccount(
  query: QueryControl,
  { tenant, origin }: Pick<RequestContext, 'tenant' | 'origin'>,
  provider: StoredProvider,
  rule: AccountRule,
  subject: string,
  { address, firstName, lastName }: NewPerson,
): Promise<number | Parameters<typeof refuseIdToken>[2]> {
  await query('lock_role_of_rule', lockRole, [rule.roleId]);
  const values = [provider.id, tenant.id, rule.roleId];
  const [found] = await query<{ made: number; isWithin: boolean; rule: AccountRule }>(
    'lock_provider_of_rule',
    lockProvider,
    values,
  );
  if (!found) return 'no_rule';

  // Another sign-in of the person may have made the account before this one had the lock.
  const made = await findIdentityWithin(query, tenant.id, provider.id, subject);
  if (made) return made.userId;

  // The rule that was checked is that of before the lock.
  if (!isDeepStrictEqual(found.rule, rule)) return 'no_rule';
  if (!found.isWithin) return 'rights_grown';
  if (found.made >= maxPerHour) return 'too_many_accounts';

  const [other] = await query<{ id: number; isRegistration: boolean }>(
    'other_with_address_of_rule',
    otherWithAddress,
    [tenant.id, address],
  );
  if (other && !other.isRegistration) return 'address_taken';
  if (other) {
    // Anybody may have registered the address. Nobody has confirmed it.
    await withdrawLinks(query, other.id);
    await query('remove_registration', removeRegistration, [other.id]);
  }

  const [added] = await query<{ id: number; userGuid: string }>('insert_user_of_rule', insertUser, [
    tenant.id,
    address,
    firstName,
    lastName,
    rule.roleId,
    rule.scope,
    rule.entityId,
    rule.entitySince,
  ]);
  if (!added) return 'address_taken';

  // The person is the actor of what follows, as at a login.
  const { ipAddress, traceId } = origin;
  const { id: userId, userGuid } = added;
  await setActor(query, JSON.stringify({ userId, userGuid, ipAddress, traceId }));
  const identity = { tenantId: tenant.id, userId, providerId: provider.id, subject };
  const linked = await linkIdentity(query, { ...identity, email: address, isByRule: true });
  // Another request has linked it meanwhile: this transaction must not leave an account.
  if (linked === undefined) throw invalidIdToken();

  return userId;
}

/** True if the token has each claim of the rule, with the same value. */
function hasClaims({ all }: IdTokenClaims, { claims }: AccountRule): boolean {
  return Object.entries(claims).every(
    ([name, value]) => Object.hasOwn(all, name) && all[name] === value,
  );
}

async function isEntityThere(
  context: RequestContext,
  { entityId, entitySince }: AccountRule,
): Promise<boolean> {
  if (entityId === null) return true;
  const entity = await context.em.findOne(Entity, { id: entityId });

  return entity !== null && isSameEntity(entity, entitySince);
}

const nameField = text({ max: lengths.name });

/** Returns the names of a person as the provider has them; else the address stands for them. */
function namesOf(
  { givenName, familyName, name }: IdTokenClaims,
  address: string,
): { firstName: string; lastName: string } {
  const read = (value: string | undefined) => nameField.safeParse(value).data;
  const [first, ...rest] = (read(name) ?? '').split(' ');
  const firstName = read(givenName) ?? read(first) ?? address.slice(0, address.lastIndexOf('@'));
  const lastName = read(familyName) ?? read(rest.join(' ')) ?? firstName;

  return { firstName, lastName };
}
