import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { isPhysicalName } from '../databases/physical-names.ts';
import { tenantGroup } from '../schema/template.ts';
import { type CheckContext, recordedNames } from './check-context.ts';
import { checkUnprivileged } from './check-unprivileged.ts';

/**
 * Checks the group whose members are the login roles of all tenants. Every tenant has the privileges of the group. So
 * the group must not log in, and must have no privileges on databases and no other members.
 */
export function checkTenantGroup(context: CheckContext): void {
  const { server, facts, report } = context;
  const group = tenantGroup(server);
  const role = facts.roles.get(group);
  if (!role) return;
  checkUnprivileged(role, [], undefined, context);
  if (role.login)
    report({
      check: 'excess_rights',
      problem: `the group ${group} may log in`,
      remedy: `Forbid ${group} to log in`,
      statements: [`alter role ${quote(group)} nologin`],
      alters: group,
    });
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
