import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { isPhysicalName } from '../databases/store/database-names.ts';
import { closedStamp, nobody } from '../databases/store/database-stamp.ts';
import { asOwner, type CheckContext, recordedNames } from './check-context.ts';
import type { Report } from './finding.ts';
import { unknownGuid } from './orphan-identities.ts';
import { psqlCommand } from './psql-command.ts';
import type { RoleFacts } from './server-facts.ts';

/**
 * Checks that every database and role with a name of this installation is recorded in the
 * control database.
 */
export function checkOrphans(context: CheckContext): void {
  const names = recordedNames(context);
  checkOrphanDatabases(context, names);
  checkOrphanRoles(context, names);
}

function checkOrphanDatabases(context: CheckContext, names: ReadonlySet<string>): void {
  const { server, tenants, control, facts, orphanIdentities, report } = context;

  for (const { name, broken } of facts.databases.values()) {
    if (names.has(name) || !isPhysicalName(server, name)) continue;

    const identity = orphanIdentities.get(name);
    const isOwner = ({ guid }: { guid: string }) =>
      identity === guid || identity === closedStamp(guid);
    const owner = tenants.find(isOwner) ?? control.tenants.find(isOwner);
    // checkTenantDatabase reports it as renamed
    if (
      owner?.guid === identity &&
      owner &&
      tenants.includes(owner) &&
      !facts.databases.has(owner.databaseName)
    ) {
      continue;
    }

    const place = control.databases.find(({ database }) => database === name);
    const tenant = control.tenants.find(({ id }) => id === place?.tenantId) ?? owner;
    if (tenant && (place || tenant.guid === identity)) {
      report(copiedDatabase(server.name, name, tenant, place));
      continue;
    }

    const drop = `drop database if exists ${quote(name)}`;
    if (isOfPurgedTenant(context, identity)) {
      report({
        check: 'orphan_database',
        problem: `a command has left database ${name}, whose tenant was purged meanwhile`,
        remedy: 'Drop it',
        statements: [drop, `drop role if exists ${quote(name)}`],
      });
    } else if (broken) {
      report({
        check: 'half_dropped_database',
        problem: `database ${name} is half dropped, and no tenant has it`,
        remedy: `Drop database ${name}`,
        statements: [drop],
      });
    } else if (isOfUnknownTenant(context, name)) {
      report({
        check: 'unknown_tenant',
        problem: `database ${name} has the data of a tenant that the control database does not know`,
        remedy: unknownTenantRemedy(context.control.tenants.length > 0),
      });
    } else {
      report({
        check: 'orphan_database',
        problem: `no tenant has database ${name}${owner ? `, which holds a copy of the data of ${owner.slug}` : ''}`,
        remedy: `${owner ? newerFirst(owner.slug) : ''}Find out which application uses it. If none does, drop it${asOwner(facts, name)}: ${psqlCommand(`drop database ${quote(name)}`)}`,
      });
    }
  }
}

/**
 * Returns the report of a database with the data of a tenant that is recorded on another
 * server, or in another database. It is no orphan: its server may have two names, or may be the
 * one that serves the tenant. The tenant itself is well, so the report is of no tenant.
 */
function copiedDatabase(
  server: string,
  name: string,
  { slug, databaseName, server: current }: CheckContext['control']['tenants'][number],
  place: CheckContext['control']['databases'][number] | undefined,
): Report {
  const home = place?.server ?? current.name;
  const where = place
    ? `which the control database records on server ${home}`
    : `which ${home} serves from database ${databaseName}`;
  const otherName =
    home === server
      ? ''
      : `If server ${server} is the server ${home} under another name, remove this name: bin/backoffice server remove ${server}. `;

  return {
    check: 'copied_database',
    problem: `database ${name} has the data of ${slug}, ${where}`,
    remedy:
      `Do not drop it before you know what it is. ${otherName}If it is a copy that somebody has made, compare the two ` +
      'before you drop one',
  };
}

/**
 * Returns the beginning of a remedy: if the control database has lost its last commits, the
 * tenant may have been served from the orphan. The databases tell whether a swap takes it: the
 * plan of `databases prune` looks.
 */
function newerFirst(slug: string): string {
  return (
    `It may have newer data than the current database: bin/backoffice databases prune ${slug} --dry-run ` +
    'says so if it is known, with the command that puts it in place (restore swap). Otherwise ' +
    'compare the two (docs/operate/incidents.md). '
  );
}

/**
 * Returns the remedy for the database of an unknown tenant. A control database with tenants was
 * not lost; at most it is of an earlier time.
 */
function unknownTenantRemedy(hasTenants: boolean): string {
  return hasTenants
    ? 'Do not drop it. If the control database was restored from an earlier time, the tenant was provisioned after ' +
        'it: see docs/operate/restore.md. If the database is of another installation, leave it to that one.'
    : 'Do not drop it. If the control database was lost, and this is a new one: bin/backoffice control restore ' +
        '(if the database is of another installation, leave it to that one)';
}

/** True if a database is a closed one of a purged tenant. */
function isOfPurgedTenant({ control }: CheckContext, identity: string | undefined): boolean {
  return (
    identity !== undefined &&
    [...control.purgedTenants].some(guid => identity === closedStamp(guid))
  );
}

/**
 * True if a database may have the only copy of a tenant's data. A database that cannot be read
 * counts only while the control database has no tenant at all, as a new one.
 */
function isOfUnknownTenant(context: CheckContext, name: string): boolean {
  const { control, orphanIdentities } = context;
  const guid = orphanIdentities.get(name);
  if (guid === undefined || guid === nobody) return false;
  if (guid === unknownGuid) return control.tenants.length === 0;
  return (
    !control.purgedTenants.has(guid) &&
    !isOfPurgedTenant(context, guid) &&
    !control.tenants.some(tenant => guid === tenant.guid || guid === closedStamp(tenant.guid))
  );
}

function checkOrphanRoles(context: CheckContext, names: ReadonlySet<string>): void {
  const { server, facts, orphanIdentities, report } = context;
  for (const role of facts.roles.values()) {
    const { name } = role;
    if (names.has(name) || !isPhysicalName(server, name) || isOfUnknownTenant(context, name)) {
      continue;
    }
    // The role of a database that `copiedDatabase` reports.
    if (context.control.databases.some(each => each.role === name)) continue;
    // The role is dropped with the database.
    if (isOfPurgedTenant(context, orphanIdentities.get(name))) continue;
    report(orphanRole(role));
  }
}

/**
 * A role can be dropped when it has neither objects nor rights in any database: its repair
 * begins with one of them.
 */
function orphanRole({ name, ownsIn, grantedIn }: RoleFacts): Report {
  const place = [...ownsIn, ...grantedIn].find(database => database !== null);
  const problem = `no tenant has login role ${name}`;
  if (place === undefined) {
    return {
      check: 'orphan_role',
      problem,
      remedy: 'Find out which application uses it. If none does, drop it',
      statements: [`drop role ${quote(name)}`],
      kind: 'named',
      alters: name,
    };
  }

  return {
    check: 'orphan_role',
    problem: `${problem}, which has rights in database ${place}`,
    remedy:
      'Find out which application uses it. If none does, give its objects to the login of this command, and revoke its rights there',
    statements: [
      `grant ${quote(name)} to current_user`,
      `reassign owned by ${quote(name)} to current_user`,
      `drop owned by ${quote(name)}`,
    ],
    kind: 'named',
    database: place,
    alters: name,
  };
}
