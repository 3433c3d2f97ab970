import type { Server } from '../../control/fleet-entities.ts';
import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { nobody } from '../move/tenant-guard.ts';
import { isPhysicalName, warmNumber } from '../provisioning/physical-names.ts';
import { type CheckContext, isKnownWarmName } from './check-context.ts';
import type { DatabaseFacts } from './server-facts.ts';
import { unknownGuid } from './unclaimed-databases.ts';

/** Checks that every database and role with a name of this installation belongs to a tenant or to the warm pool. */
export function checkOrphans(context: CheckContext): void {
  const droppedDatabases = checkOrphanDatabases(context);
  checkOrphanRoles(context, droppedDatabases);
}

/** @returns the leftover warm databases, whose repair drops the role of the same name too */
function checkOrphanDatabases(context: CheckContext): Set<string> {
  const { server, tenants, facts, unclaimedIdentities, report } = context;
  const tenantDatabases = new Set([...tenants.map(({ databaseName }) => databaseName), ...moveNames(context)]);
  const leftovers = new Set<string>();
  for (const database of facts.databases.values()) {
    const { name, broken } = database;
    if (tenantDatabases.has(name) || isKnownWarmName(context, name) || !isPhysicalName(server, name)) continue;
    const owner = tenants.find(({ guid }) => guid === unclaimedIdentities.get(name));
    if (owner && !facts.databases.has(owner.databaseName)) continue; // checkTenantDatabase reports it as renamed
    const drop = `drop database if exists ${quote(name)}`;
    if (isWarmLeftover(server, database)) {
      leftovers.add(name);
      report({
        check: 'warm_leftover',
        problem: `the pool has no record of warm database ${name}`,
        remedy: `Drop database ${name} and its role`,
        statements: [drop, ...(facts.roles.has(name) ? [`drop role if exists ${quote(name)}`] : [])],
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
        check: 'orphan_database',
        problem: `database ${name} has the data of a tenant that the control database does not know`,
        remedy:
          'Do not drop it. If the control database was lost, and this is a new one: npx backoffice control restore. ' +
          'If the database is of another installation, leave it to that one.',
      });
    } else {
      report({
        check: 'orphan_database',
        problem: `no tenant has database ${name}${owner ? `, which holds a copy of the data of ${owner.slug}` : ''}`,
        remedy: `Find out which application uses it. If none does, drop it: drop database ${quote(name)};`,
      });
    }
  }
  return leftovers;
}

/**
 * Returns whether a database may have the only copy of a tenant's data. A closed one cannot be read: it counts while the
 * control database has no tenant at all, as a new one has none.
 */
function isOfUnknownTenant({ control, unclaimedIdentities }: CheckContext, name: string): boolean {
  const guid = unclaimedIdentities.get(name);
  if (guid === undefined || guid === nobody) return false;
  if (guid === unknownGuid) return control.tenants.length === 0;
  return !control.purgedTenants.has(guid) && !control.tenants.some(tenant => tenant.guid === guid);
}

function checkOrphanRoles(context: CheckContext, droppedDatabases: ReadonlySet<string>): void {
  const { server, tenants, facts, report } = context;
  const tenantRoles = new Set([...tenants.map(({ roleName }) => roleName), ...moveNames(context)]);
  for (const { name } of facts.roles.values()) {
    if (tenantRoles.has(name) || isKnownWarmName(context, name) || !isPhysicalName(server, name)) continue;
    if (droppedDatabases.has(name) || isOfUnknownTenant(context, name)) continue;
    if (warmNumber(server, name) !== undefined && !facts.databases.has(name))
      report({
        check: 'warm_leftover',
        problem: `the pool has no record of role ${name} of a warm database`,
        remedy: `Drop role ${name}`,
        statements: [`drop role if exists ${quote(name)}`],
      });
    else
      report({
        check: 'orphan_role',
        problem: `no tenant has login role ${name}`,
        remedy: `Find out which application uses it. If none does, drop it: drop role ${quote(name)};`,
      });
  }
}

/**
 * The names of databases and roles that a move still needs. `checkMoves` reports those that it does not need any more.
 */
function moveNames({ control }: CheckContext): string[] {
  return control.moves.flatMap(({ fromDatabase, fromRole, toDatabase }) => [fromDatabase, fromRole, toDatabase]);
}

/**
 * A warm database is closed until a tenant claims it. An open database of such a name holds data, so it is never
 * dropped.
 */
function isWarmLeftover(server: Server, { name, open, broken }: DatabaseFacts): boolean {
  return warmNumber(server, name) !== undefined && (!open || broken);
}
