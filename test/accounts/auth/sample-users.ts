import { randomBytes } from 'node:crypto';
import type { User } from '../../../src/control/control-entities.ts';
import { addUser } from '../../../src/operator/credentials/users.ts';
import { findTenant } from '../../../src/operator/registry/tenants.ts';
import { eventually } from '../../support/eventually.ts';
import { tryMailsNow } from '../../support/mails.ts';
import { controlSql, type TestTenant, type World } from '../../support/world.ts';

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

/**
 * Runs `work` while the service may not read users: a response that arrives meanwhile cannot
 * depend on whether a user exists. Mails that were asked for are sent afterwards.
 */
export async function withUsersHidden<T>(world: World, work: () => Promise<T>): Promise<T> {
  const [{ role } = { role: '' }] = await controlSql<{ role: string }>(
    world,
    `select quote_ident(current_database() || '_service') as role`,
  );
  await controlSql(world, `revoke select on users from ${role}`);
  try {
    return await work();
  } finally {
    await controlSql(world, `grant select on users to ${role}`);
    await eventually(async () => {
      await tryMailsNow(world);
      return (
        (
          await controlSql(
            world,
            `select from mail_deliveries where address is not null and state = 'waiting'`,
          )
        ).length === 0
      );
    });
  }
}
