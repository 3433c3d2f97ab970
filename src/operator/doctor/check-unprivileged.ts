import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { isPhysicalName } from '../databases/store/database-names.ts';
import { tenantGroup } from '../schema/template.ts';
import { type CheckContext, recordedNames } from './check-context.ts';
import type { RoleFacts } from './server-facts.ts';

/** Attributes that a login with `createdb` and `createrole` cannot remove. */
const ofSuperusers = ['superuser', 'replication', 'bypassrls'];

/**
 * Checks a login role of a tenant, or the group of all of them: it has no attributes such as
 * `createdb`, owns nothing, and is a member of the given groups at most.
 */
export function checkUnprivileged(
  role: RoleFacts,
  allowedGroups: string[],
  { report }: CheckContext,
): void {
  const { name, attributes, groups, ownsIn } = role;

  if (attributes.length > 0) {
    report({
      check: 'excess_rights',
      problem: `role ${name} is ${attributes.join(', ')}`,
      remedy: `Remove ${attributes.join(', ')} from role ${name}`,
      statements: [
        `alter role ${quote(name)} ${attributes.map(attribute => `no${attribute}`).join(' ')}`,
      ],
      alters: name,
      needsSuperuser: attributes.some(attribute => ofSuperusers.includes(attribute)),
    });
  }

  for (const group of groups.filter(each => !allowedGroups.includes(each))) {
    report({
      check: 'excess_rights',
      problem: `role ${name} is a member of ${group}`,
      remedy: `Revoke ${group} from ${name}`,
      statements: [`revoke ${quote(group)} from ${quote(name)}`],
      needsSuperuser: true,
    });
  }

  for (const database of ownsIn) {
    report({
      check: 'excess_rights',
      problem: `role ${name} owns objects ${placeOf(database)}`,
      remedy: `Give them to the login of this command`,
      statements: [
        `grant ${quote(name)} to current_user`,
        `reassign owned by ${quote(name)} to current_user`,
        `revoke ${quote(name)} from current_user`,
      ],
      kind: 'named',
      database: database ?? undefined,
      alters: name,
    });
  }
}

/** @param database null: objects that belong to no database, such as tablespaces */
export function placeOf(database: string | null): string {
  return database === null ? 'shared by all databases' : `in database ${database}`;
}

/**
 * Checks the group whose members are the login roles of all tenants. Every tenant has the
 * privileges of the group. So the group must not log in, and must have no privileges on
 * databases and no other members.
 */
export function checkTenantGroup(context: CheckContext): void {
  const { server, facts, report } = context;
  const group = tenantGroup(server);
  const role = facts.roles.get(group);
  if (!role) return;

  checkUnprivileged(role, [], context);
  if (role.login) {
    report({
      check: 'excess_rights',
      problem: `the group ${group} may log in`,
      remedy: `Forbid ${group} to log in`,
      statements: [`alter role ${quote(group)} nologin`],
      alters: group,
    });
  }

  for (const name of new Set(facts.grantsTo.get(group)?.map(({ database }) => database))) {
    report({
      check: 'excess_rights',
      problem: `all tenants have privileges on database ${name}, through the group ${group}`,
      remedy: `Revoke all privileges on database ${name} from ${group}`,
      statements: [`revoke all on database ${quote(name)} from ${quote(group)}`],
      changes: name,
    });
  }

  const recorded = recordedNames(context);
  for (const member of facts.members.get(group) ?? []) {
    if (recorded.has(member) || isPhysicalName(server, member)) continue;
    report({
      check: 'excess_rights',
      problem: `role ${member} has the privileges of tenants, as a member of the group ${group}`,
      remedy: `Revoke ${group} from ${member}`,
      statements: [`revoke ${quote(group)} from ${quote(member)}`],
    });
  }
}
