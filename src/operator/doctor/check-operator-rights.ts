import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { tenantGroup } from '../schema/template.ts';
import { type CheckContext, recordedNames } from './check-context.ts';
import { psqlCommand } from './psql-command.ts';

/**
 * Checks that the login of the commands may change the databases and login roles of tenants.
 * CREATEROLE and CREATEDB do not suffice: since PostgreSQL 16, only the login that has made a
 * role may change it, and logins to which that was granted. The owner of a database is not
 * always the owner of the objects in it: `reassign owned` in the control database changes the
 * owner of every database, and of the objects of that one only.
 */
export function checkOperatorRights(context: CheckContext): void {
  const { server, facts, report } = context;
  if (facts.isSuperuser) return;

  const recorded = recordedNames(context);
  const databases = [...facts.databases.values()].filter(
    ({ name }) => recorded.has(name) || name.startsWith(`${server.prefix}_template_`),
  );
  const foreign = databases.filter(({ name, isOwn }) => !isOwn || facts.ownersIn.has(name));
  // A member of the owner may do what the owner may; a member of a superuser could become one.
  const owners = new Set(
    foreign.flatMap(({ name, isOwn, isOwnedBySuperuser, owner }) => [
      ...(isOwn || isOwnedBySuperuser ? [] : [owner]),
      ...(facts.ownersIn.get(name) ?? []).filter(each => !recorded.has(each)),
    ]),
  );
  const ofSuperusers = foreign
    .filter(each => !each.isOwn && each.isOwnedBySuperuser)
    .map(({ name }) => name);

  const names = new Set([...recorded, tenantGroup(server)]);
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
