import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { tenantGroup } from '../schema/template.ts';
import type { CheckContext } from './check-context.ts';
import { psqlCommand } from './psql-command.ts';

/**
 * Checks that the login of the commands may change the databases and login roles of tenants.
 * CREATEROLE and CREATEDB do not suffice: since PostgreSQL 16, only the login that has made a
 * role may change it, and logins to which that was granted.
 */
export function checkOperatorRights(context: CheckContext): void {
  const { server, tenants, facts, report } = context;
  if (facts.isSuperuser) return;

  const databases = tenants.map(({ databaseName }) => facts.databases.get(databaseName));
  const foreign = databases.filter(each => each !== undefined).filter(({ isOwn }) => !isOwn);
  // A member of the owner may do what the owner may; a member of a superuser could become one.
  const owners = new Set(
    foreign.filter(each => !each.isOwnedBySuperuser).map(({ owner }) => owner),
  );
  const ofSuperusers = foreign.filter(each => each.isOwnedBySuperuser).map(({ name }) => name);

  const names = new Set([...tenants.map(({ roleName }) => roleName), tenantGroup(server)]);
  const roles = [...facts.roles.values()].filter(({ name, isOwn }) => names.has(name) && !isOwn);
  const alone = roles
    .filter(({ admins }) => !admins.some(admin => owners.has(admin)))
    .map(({ name }) => name);

  const to = quote(facts.login);
  const statements = [
    ...[...owners].map(owner => `grant ${quote(owner)} to ${to}`),
    ...ofSuperusers.map(name => `alter database ${quote(name)} owner to ${to}`),
    ...alone.map(name => `grant ${quote(name)} to ${to} with admin option`),
  ];
  if (statements.length === 0) return;

  const lacking = [
    ...foreign.map(({ name }) => `database ${name}`),
    ...roles.map(({ name }) => `role ${name}`),
  ];
  report({
    check: 'operator_rights',
    problem: `the login ${facts.login} of the commands may not change ${lacking.join(', ')}`,
    remedy: `Grant it that, as a superuser: ${psqlCommand(statements)}`,
  });
}
