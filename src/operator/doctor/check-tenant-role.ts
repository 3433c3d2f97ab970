import { owners, type SecretBox } from '../../control/secret-box.ts';
import { quoteIdentifier as quote, quoteLiteral } from '../../lib/postgres/quote.ts';
import { tenantVerifier } from '../databases/protocol/create-database.ts';
import { tenantGroup } from '../schema/template.ts';
import type { CheckContext } from './check-context.ts';
import { checkUnprivileged, placeOf } from './check-unprivileged.ts';
import type { CheckedTenant } from './control-facts.ts';
import type { RoleFacts } from './server-facts.ts';

/**
 * Checks that the login role of a tenant exists, and that it has the privileges that it needs
 * and no others.
 */
export function checkTenantRole(tenant: CheckedTenant, context: CheckContext): void {
  const role = context.facts.roles.get(tenant.roleName);
  if (!role) {
    reportMissingRole(tenant, context);
    return;
  }
  checkUnprivileged(role, [tenantGroup(context.server)], context);
  checkNeeds(role, tenant, context);
  checkExcess(role, tenant, context);
}

function reportMissingRole(
  tenant: CheckedTenant,
  { server, facts, secrets, report }: CheckContext,
): void {
  const { databaseName, roleName } = tenant;
  const password = openPassword(tenant, secrets);
  const hasDatabase = facts.databases.has(databaseName);
  // Without a password nobody logs in: checkControl reports that it cannot be decrypted, and
  // gives the role another one.
  const withPassword =
    password === undefined ? '' : ` password ${quoteLiteral(tenantVerifier(password))}`;

  report({
    check: 'missing_role',
    problem: `login role ${roleName} is missing`,
    remedy: `Create role ${roleName} with its stored password`,
    statements: [
      `create role ${quote(roleName)} login${withPassword}`,
      `grant ${quote(tenantGroup(server))} to ${quote(roleName)}`,
      ...(hasDatabase
        ? [`grant connect on database ${quote(databaseName)} to ${quote(roleName)}`]
        : []),
    ],
  });
}

/**
 * Checks that the role can log in, is a member of the group of all tenants, and has CONNECT on
 * the tenant's database.
 */
function checkNeeds(
  role: RoleFacts,
  { slug, databaseName, roleName }: CheckedTenant,
  context: CheckContext,
): void {
  const { facts, report } = context;
  const group = tenantGroup(context.server);

  if (!role.login) {
    report({
      check: 'missing_rights',
      problem: `role ${roleName} may not log in`,
      remedy:
        'It may belong to a closed database. Open the database that serves the tenant: ' +
        `bin/backoffice databases prune ${slug}`,
    });
  }

  if (!role.groups.includes(group)) {
    report({
      check: 'missing_rights',
      problem: `role ${roleName} is not a member of the group ${group}`,
      remedy: `Grant ${group} to ${roleName}`,
      statements: [`grant ${quote(group)} to ${quote(roleName)}`],
    });
  }

  const grants = facts.grantsTo.get(roleName) ?? [];
  const mayConnect = grants.some(
    ({ database, privilege }) => database === databaseName && privilege === 'CONNECT',
  );
  if (facts.databases.has(databaseName) && !mayConnect) {
    report({
      check: 'missing_rights',
      problem: `role ${roleName} has no CONNECT on database ${databaseName}`,
      remedy: `Grant CONNECT on database ${databaseName} to ${roleName}`,
      statements: [`grant connect on database ${quote(databaseName)} to ${quote(roleName)}`],
    });
  }
}

/**
 * Checks that the role has no privilege on the tenant's database but CONNECT, and none on or
 * inside any other database.
 */
function checkExcess(
  role: RoleFacts,
  { guid, databaseName, roleName }: CheckedTenant,
  context: CheckContext,
): void {
  const { facts, orphanIdentities, report } = context;
  const isMissing = !facts.databases.has(databaseName);

  for (const [name, grants] of Map.groupBy(
    facts.grantsTo.get(roleName) ?? [],
    ({ database }) => database,
  )) {
    // This is the tenant's own database, renamed.
    if (isMissing && orphanIdentities.get(name) === guid) continue;

    const excess = new Set(grants.map(({ privilege }) => privilege));
    if (name === databaseName) excess.delete('CONNECT');
    if (excess.size === 0) continue;

    const privileges = [...excess].join(', ');
    report({
      check: 'excess_rights',
      problem: `role ${roleName} has ${privileges} on database ${name}`,
      remedy: `Revoke ${privileges} on database ${name} from ${roleName}`,
      statements: [`revoke ${privileges} on database ${quote(name)} from ${quote(roleName)}`],
      changes: name,
    });
  }

  for (const database of role.grantedIn.filter(name => name !== databaseName)) {
    report({
      check: 'excess_rights',
      problem: `role ${roleName} has privileges on objects ${placeOf(database)}`,
      remedy: 'Find out who granted them and why, then revoke them there',
      // The statements revoke the rights on databases, too, and would drop what the role owns:
      // `checkUnprivileged` reports that first.
      statements: role.ownsIn.length > 0 ? undefined : dropRights(roleName, databaseName),
      kind: 'named',
      database: database ?? undefined,
      needsSuperuser: true,
    });
  }
}

/**
 * Returns the statements that revoke all rights of a role, except CONNECT on its own database.
 * The role owns nothing.
 */
function dropRights(role: string, database: string): string[] {
  return [
    `drop owned by ${quote(role)}`,
    `grant connect on database ${quote(database)} to ${quote(role)}`,
  ];
}

/** Returns the stored password of the role; undefined when it cannot be decrypted. */
export function openPassword(
  { rolePassword, guid }: CheckedTenant,
  secrets: SecretBox,
): string | undefined {
  try {
    return secrets.open(rolePassword, owners.rolePassword(guid)).toString();
  } catch {
    return undefined;
  }
}
