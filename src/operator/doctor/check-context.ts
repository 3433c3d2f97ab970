import type { Server } from '../../control/control-entities.ts';
import type { SecretBox } from '../../control/secret-box.ts';
import type { CheckedTenant, ControlFacts } from './control-facts.ts';
import type { Report } from './finding.ts';
import { psqlCommand } from './psql-command.ts';
import type { ServerFacts } from './server-facts.ts';

/** The data that all checks of one server use. */
export interface CheckContext {
  server: Server;
  /** The tenants that are placed on the server. */
  tenants: CheckedTenant[];
  /** The facts that the control database records. */
  control: ControlFacts;
  /** The databases and roles of the server. */
  facts: ServerFacts;
  /** The guid of the tenant whose data an orphan database has, by the name of the database. */
  orphanIdentities: ReadonlyMap<string, string>;
  secrets: SecretBox;
  /** Adds a finding; in a check of one tenant, with that tenant. */
  report(report: Report): void;
}

/**
 * Returns the names of the databases and roles of a server that the control database records.
 */
export function recordedNames({ server, tenants, control }: CheckContext): Set<string> {
  const own = control.databases.filter(({ serverId }) => serverId === server.id);
  return new Set([
    ...own.flatMap(({ database, role }) => [database, role]),
    ...tenants.flatMap(({ databaseName, roleName }) => [databaseName, roleName]),
  ]);
}

/**
 * Returns, for a remedy, the role that has to run a statement that changes or drops a database:
 * its owner, or a superuser. Returns an empty text if the login of this command may run it.
 */
export function asOwner({ databases }: ServerFacts, name: string): string {
  const database = databases.get(name);
  return !database || database.isOwn ? '' : ` as its owner ${database.owner} or as a superuser`;
}

/**
 * Removes a repair that the login of this command may not make. The remedy then names the role
 * that may, with the command.
 */
export function withinRights(report: Report, facts: ServerFacts): Report {
  const { changes, alters, needsSuperuser, statements, kind: _, control: __, ...rest } = report;
  if (!statements) return report;

  const isOwn = changes === undefined || facts.databases.get(changes)?.isOwn !== false;
  const mayAlter = alters === undefined || facts.roles.get(alters)?.isOwn !== false;
  if (isOwn && mayAlter && (!needsSuperuser || facts.isSuperuser)) return report;

  const who = isOwn
    ? 'a superuser of the server'
    : `${facts.databases.get(changes ?? '')?.owner}, its owner, or a superuser`;

  return {
    ...rest,
    remedy: `${report.remedy}, as ${who}: ${psqlCommand(statements, report.database)}`,
  };
}
