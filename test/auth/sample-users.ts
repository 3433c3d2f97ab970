import { randomBytes } from 'node:crypto';
import type { User } from '../../src/control/control-entities.ts';
import { addUser } from '../../src/operator/people/users.ts';
import { findTenant } from '../../src/operator/tenants/tenants.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import type { TestTenant, World } from '../support/world.ts';

export interface SampleUser {
  id: number;
  guid: string;
  email: string;
  password: string;
}

interface SampleUserOptions {
  email?: string;
  password?: string;
  role?: string;
  scope?: 'Self' | 'All';
  entityId?: number | null;
}

/** Adds a confirmed user to a tenant, with the code that the operator's command line uses. */
export async function addSampleUser(
  world: World,
  tenant: TestTenant,
  options: SampleUserOptions = {},
): Promise<SampleUser> {
  const email = options.email ?? `person-${randomBytes(4).toString('hex')}@${tenant.slug}.test`;
  const password = options.password ?? randomBytes(12).toString('hex');
  const user: User = await addUser(world.installation, world.passwords, {
    tenant: await findTenant(world.installation, tenant.slug),
    email,
    password,
    firstName: 'Per',
    lastName: 'Son',
    role: options.role ?? 'Member',
    scope: options.scope ?? 'All',
    entityId: options.entityId ?? null,
  });
  return { id: user.id, guid: user.guid, email, password };
}

/** Locks the users while `work` runs: a response that arrives meanwhile cannot depend on whether a user exists. */
export function withUsersLocked<T>(world: World, work: () => Promise<T>): Promise<T> {
  return withConnection(world.config.databaseUrl ?? '', async client => {
    await client.query('begin; lock table users, mail_tokens, registrations in access exclusive mode');
    const result = await work();
    await client.query('commit');
    return result;
  });
}
