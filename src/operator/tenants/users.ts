import { randomInt } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import { isEmail, normaliseEmail } from '../../auth/email.ts';
import { passwordError } from '../../auth/new-password.ts';
import type { Passwords } from '../../auth/passwords.ts';
import { revokeSessionsOf } from '../../auth/sessions.ts';
import type { Tenant } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import { Role, type Scope, User } from '../../control/user-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { findUser } from './clients.ts';

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

/**
 * Adds a confirmed user to a tenant.
 * @throws {OperatorError} for an unknown role or entity, an address that is not one or is taken, a bad password
 */
export async function addUser(installation: Installation, passwords: Passwords, user: NewUser): Promise<User> {
  if (user.entityId !== null) await requireEntity(installation, user.tenant, user.entityId);
  return insertUser(installation.control.em.fork(), passwords, user);
}

/** The same, as a part of a larger change; the entity is known to exist. */
export async function insertUser(
  em: EntityManager,
  passwords: Passwords,
  { role: roleName, password, ...user }: NewUser,
): Promise<User> {
  const email = normaliseEmail(user.email);
  if (!isEmail(email)) throw new OperatorError('that is not an e-mail address', { usage: true });
  const role = await em.findOne(Role, { tenant: user.tenant.id, name: roleName });
  if (!role) throw new OperatorError(`${user.tenant.slug} has no role ${roleName}`);
  if (await em.findOne(User, { tenant: user.tenant.id, email }))
    throw new OperatorError(`${user.tenant.slug} has a user ${email} already`);
  const passwordHash = await passwords.hash(checkPassword(password));
  const added = em.create(User, {
    ...user,
    tenant: user.tenant.id,
    email,
    role,
    passwordHash,
    confirmedAt: new Date(),
  });
  await em.flush();
  return added;
}

/** Sets a password and ends every session of the user. */
export async function setPassword(
  installation: Installation,
  passwords: Passwords,
  slug: string,
  email: string,
  password: string,
): Promise<User> {
  const user = await findUser(installation, slug, email);
  const passwordHash = await passwords.hash(checkPassword(password));
  await installation.control.em.fork().transactional(async em => {
    await em.nativeUpdate(User, { id: user.id }, { passwordHash });
    await revokeSessionsOf(em, user.id, 'password_changed');
  });
  return user;
}

/** Shuts a user out, ending every session, or lets them in again. */
export async function setDisabled(
  installation: Installation,
  slug: string,
  email: string,
  disabled: boolean,
): Promise<User> {
  const user = await findUser(installation, slug, email);
  await installation.control.em.fork().transactional(async em => {
    await em.nativeUpdate(User, { id: user.id }, { disabledAt: disabled ? new Date() : null });
    if (disabled) await revokeSessionsOf(em, user.id, 'user_disabled');
  });
  return user;
}

async function requireEntity({ servers }: Installation, tenant: Tenant, id: number): Promise<void> {
  await withConnection(databaseUrl(servers.adminUrl(tenant.server), tenant.databaseName), async client => {
    const { rowCount } = await client.query('select from entities where id = $1', [id]);
    if (!rowCount) throw new OperatorError(`${tenant.slug} has no entity ${id}`);
  });
}

/** @returns the password as it is; @throws {OperatorError} when it cannot be one */
function checkPassword(password: string): string {
  const fault = passwordError(password);
  if (fault) throw new OperatorError(`the password ${fault}`);
  return password;
}

const alphabet = 'abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789'; // none that look alike

/** 20 random characters: 115 bits. */
export function generatePassword(): string {
  return Array.from({ length: 20 }, () => alphabet[randomInt(alphabet.length)]).join('');
}
