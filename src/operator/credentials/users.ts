import { randomInt } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import { lockAccountOf, resetFactors } from '../../accounts/auth/factors/factor-store.ts';
import {
  accountWords,
  minPasswordLength,
  type NamedAccount,
  passwordError,
} from '../../accounts/auth/new-password.ts';
import type { Passwords } from '../../accounts/auth/passwords.ts';
import { revokeSessionsOf, setPasswordHash, unexpired } from '../../accounts/auth/sessions.ts';
import { setUserDisabled } from '../../accounts/auth/set-user-disabled.ts';
import type { PeopleTransaction } from '../../accounts/people/change-people.ts';
import { Role, type Tenant, User } from '../../control/control-entities.ts';
import { type QueryControl, transactControl } from '../../control/database.ts';
import type { Installation } from '../../control/installation.ts';
import type { Scope } from '../../control/scopes.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { changeOrUndo } from '../command/change-or-undo.ts';
import { connectTenant, findTenant } from '../registry/tenants.ts';
import { changePeopleOf } from './change-people-of.ts';
import { noSuchUser, type UserSummary } from './read-users.ts';
import { requireEmail, requireName } from './required-values.ts';

export interface NewUser {
  tenant: Tenant;
  email: string;
  firstName: string;
  lastName: string;
  role: string;
  scope: Scope;
  entityId: number | null;
  password: string;
}

/** @throws {OperatorError} when the text is no address, or the tenant has no user with it */
export async function findUser(
  installation: Installation,
  slug: string,
  address: string,
): Promise<User> {
  const tenant = await findTenant(installation, slug);
  const email = requireEmail(address);
  const { em } = await installation.control();
  const user = await em.fork().findOne(User, { tenant: tenant.id, email });
  if (!user) throw noSuchUser(slug, email);
  return user;
}

/**
 * Adds a confirmed user to a tenant.
 * @param isDryRun true to return the user, and to change nothing
 * @throws {OperatorError} when the role or the entity does not exist, the e-mail address is
 *   invalid or taken, or a name or the password is not acceptable
 */
export async function addUser(
  installation: Installation,
  passwords: Passwords,
  user: NewUser,
  isDryRun = false,
): Promise<User> {
  const { tenant, entityId } = user;
  requireAcceptable(installation, tenant, user);
  const entitySince =
    entityId === null ? null : await requireEntity(installation, tenant, entityId);
  const { em } = await installation.control();
  const transact = (work: (em: EntityManager) => Promise<User>) => em.fork().transactional(work);
  return changeOrUndo(transact, isDryRun, em =>
    insertUser(em, passwords, { ...user, entitySince }),
  );
}

/**
 * The same as `addUser` in the transaction of the caller, who guarantees that the entity
 * exists, and that the password is acceptable.
 */
export async function insertUser(
  em: EntityManager,
  passwords: Pick<Passwords, 'hash'>,
  { role: roleName, password, ...user }: NewUser & { entitySince: string | null },
): Promise<User> {
  const { slug, id: tenant } = user.tenant;

  const email = requireEmail(user.email);
  const firstName = requireName('first name', user.firstName);
  const lastName = requireName('last name', user.lastName);
  const role = await em.findOne(Role, { tenant, name: roleName });
  if (!role) throw new OperatorError(`${slug} has no role ${roleName}`);

  const passwordHash = await passwords.hash(password);

  // An error of the unique index instead would put the address into the log of the server.
  const [added] = await em.execute<{ id: string }[]>(
    `insert into users (tenant_id, role_id, email, password_hash, first_name, last_name, scope, entity_id,
                        entity_since, confirmed_at)
      values (?, ?, ?, ?, ?, ?, ?, ?, ?, now())
      on conflict (tenant_id, email) do nothing returning id`,
    [
      tenant,
      role.id,
      email,
      passwordHash,
      firstName,
      lastName,
      user.scope,
      user.entityId,
      user.entitySince,
    ],
  );

  if (!added) {
    throw new OperatorError(
      `${slug} has a user ${email} already. Set another password: ` +
        `bin/backoffice user password ${slug} ${email}`,
    );
  }
  return em.findOneOrFail(User, { id: Number(added.id) });
}

/**
 * Sets the password of a user and revokes all of the user's sessions, in one transaction.
 * @param isDryRun true to return the user, and to change nothing
 * @throws {OperatorError} when there is no such user, or the password is not acceptable
 */
export async function setPassword(
  installation: Installation,
  passwords: Passwords,
  slug: string,
  email: string,
  password: string,
  isDryRun = false,
): Promise<User> {
  const user = await findUser(installation, slug, email);
  const { firstName, lastName } = user;
  const account = { email: user.email, firstName, lastName, password };
  requireAcceptable(installation, await findTenant(installation, slug), account);
  const passwordHash = await passwords.hash(password);
  const control = await installation.control();
  const transact = (work: (query: QueryControl) => Promise<void>) => transactControl(control, work);
  await changeOrUndo(transact, isDryRun, async query => {
    await setPasswordHash(query, user.id, passwordHash);
    await revokeSessionsOf(query, user.id, 'password_changed');
  });
  return user;
}

/**
 * Disables a user, which also revokes all of the user's sessions, or enables the user again.
 * Either makes all links void that the user has received by mail.
 * @throws {OperatorError} when there is no such user, or nobody else can manage the users of
 *   the tenant
 */
export async function setDisabled(
  installation: Installation,
  slug: string,
  email: string,
  disabled: boolean,
  isDryRun = false,
): Promise<User> {
  const user = await findUser(installation, slug, email);
  const change = ({ query }: PeopleTransaction) => setUserDisabled(query, user.id, disabled);
  await changePeopleOf(installation, { id: user.tenant.id, slug }, { change, isDryRun });
  return user;
}

/**
 * Removes all second factors and recovery codes of a user.
 * @returns the user, with the number of factors
 * @throws {OperatorError} when there is no such user
 */
export async function resetFactorsOf(
  installation: Installation,
  slug: string,
  address: string,
  isDryRun = false,
): Promise<{ guid: string; email: string; factors: number }> {
  const { id: userId, guid, email, tenant } = await findUser(installation, slug, address);
  const control = await installation.control();
  const transact = (work: (query: QueryControl) => Promise<number>) =>
    transactControl(control, work);

  const factors = await changeOrUndo(transact, isDryRun, async query => {
    const { factors: confirmed } = await lockAccountOf(query, { userId, tenantId: tenant.id });
    await resetFactors(query, tenant.id, userId);
    return confirmed;
  });
  return { guid, email, factors };
}

/**
 * Returns the slugs of the other isolated tenants, as clones are, in which a user with the same
 * address may log in.
 */
export async function findOpenInClones(
  { statements }: Installation,
  slug: string,
  address: string,
): Promise<string[]> {
  const { rows } = await statements.query<{ slug: string }>(
    `select t.slug from users u join tenants t on t.id = u.tenant_id
      where u.email = $1 and u.disabled_at is null and t.isolated and t.slug <> $2 order by t.slug`,
    [requireEmail(address), slug],
  );
  return rows.map(each => each.slug);
}

/**
 * @returns the time at which the business entity was created, in ISO 8601 with microseconds
 * @throws {OperatorError} unless the tenant has it. `tenant.server` must be loaded
 */
export async function requireEntity(
  installation: Installation,
  tenant: Tenant,
  id: number,
): Promise<string> {
  return connectTenant(installation, tenant, async client => {
    const { rows } = await client.query<{ since: string }>(
      `select to_json(created_at) #>> '{}' as since from entities where id = $1`,
      [id],
    );
    if (!rows[0]) throw new OperatorError(`${tenant.slug} has no entity ${id}`);
    return rows[0].since;
  });
}

/**
 * @throws {OperatorError} when the password is too short, too long or too common, or consists of
 *   words of its account
 */
function requireAcceptable(
  { config }: Installation,
  tenant: Pick<Tenant, 'name' | 'slug'>,
  { password, ...account }: NamedAccount & { readonly password: string },
): void {
  const minLength = minPasswordLength(config.passwordMinLength, false);
  const fault = passwordError(password, { minLength, words: accountWords(account, tenant) });
  if (fault) throw new OperatorError(`The password ${fault.message}`);
}

/** Letters and digits, without those that look alike. */
const alphabet = 'abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789';

/** Returns 20 random characters: 115 bits of entropy. */
export function generatePassword(): string {
  return Array.from({ length: 20 }, () => alphabet[randomInt(alphabet.length)]).join('');
}

/** A user, and the things that end when the user is removed. */
export interface UserRemoval extends Pick<UserSummary, 'guid' | 'email' | 'role' | 'scope'> {
  /** Open sessions. */
  sessions: number;
  /** Active legacy clients that act for the user. */
  clients: number;
}

const readRemoval = `
  select guid, email, (select name from roles where id = u.role_id) as role, scope,
         (select count(*)::int from sessions
           where user_id = u.id and revoked_at is null and ${unexpired}) as sessions,
         (select count(*)::int from api_clients where user_id = u.id and revoked_at is null) as clients
    from users u where id = $1`;
const lockUser = 'select from users where id = $1 for update';
const revokeClients =
  'update api_clients set revoked_at = now() where user_id = $1 and revoked_at is null';
const deleteUser = 'delete from users where id = $1';

/**
 * Removes a user with all sessions, links in mails and legacy clients. Every process refuses
 * their tokens within a second.
 * The audit log of the tenant keeps its entries, which name the user by id and guid; neither is
 * given to another user.
 * @param isDryRun true to return what the removal ends, and to change nothing
 * @throws {OperatorError} when the user does not exist, or nobody else can manage the users of
 *   the tenant
 */
export async function removeUser(
  installation: Installation,
  slug: string,
  email: string,
  isDryRun = false,
): Promise<UserRemoval> {
  const { id, tenant } = await findUser(installation, slug, email);

  const change = async ({ query }: PeopleTransaction) => {
    const [removal] = await query<UserRemoval>('operator_user_removal', readRemoval, [id]);
    if (!removal) throw noSuchUser(slug, email);
    // before the sessions, in the order of `useLink`
    await query('operator_lock_user', lockUser, [id]);
    await revokeSessionsOf(query, id, 'operator'); // an entry of the audit log for each
    await query('operator_revoke_clients', revokeClients, [id]);
    await query('operator_delete_user', deleteUser, [id]);
    return removal;
  };

  return changePeopleOf(installation, { id: tenant.id, slug }, { change, isDryRun });
}
