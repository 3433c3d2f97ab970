import type { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { tenantHead } from '../../control/tenant-head.ts';
import { connectFailure } from '../../lib/log/postgres-causes.ts';
import { catalogQuerySettings, withConnection } from '../../lib/postgres/connection.ts';
import { requireOwnSession, SharedSessionError } from '../../lib/postgres/session-probe.ts';
import { errorText } from '../command/texts.ts';
import { readOwnDisk } from '../databases/copy/room.ts';
import { createEarlierComparison, createSchemaComparison } from '../schema/schema-comparison.ts';
import { serviceLoginOf } from '../schema/service-login.ts';
import { headFingerprint, migrationsDigest, newerDigests } from '../schema/template.ts';
import { type CheckContext, withinRights } from './check-context.ts';
import {
  checkDrillDatabases,
  checkIdleDatabases,
  checkOldTemplates,
  checkOwnTemplate,
  checkTenantDatabase,
  checkUnusedDatabases,
  type TemplateBuilds,
} from './check-databases.ts';
import { checkLogins, type EndingLogin, readEndingLogins } from './check-logins.ts';
import { checkOperatorRights } from './check-operator-rights.ts';
import { checkOrphans } from './check-orphans.ts';
import { checkOthers, readOthers } from './check-others.ts';
import { checkPublicAccess } from './check-public-access.ts';
import { checkServerSettings, readServerSettings } from './check-server-settings.ts';
import { checkSessions, readTenantSessions } from './check-sessions.ts';
import { checkTenantRole } from './check-tenant-role.ts';
import { checkTenants } from './check-tenants.ts';
import { checkTenantGroup } from './check-unprivileged.ts';
import type { CheckedTenant, ControlFacts } from './control-facts.ts';
import { type Finding, type Report, toFinding } from './finding.ts';
import { readOrphanIdentities } from './orphan-identities.ts';
import { psqlCommand } from './psql-command.ts';
import type { ServerMeasures } from './reports.ts';
import { readDatabaseSizes, readServerFacts, type ServerFacts } from './server-facts.ts';

interface Options {
  /** True if the contents of the tenant's database are checked, too. */
  isSelected: (tenant: CheckedTenant) => boolean;
  /** `CONNECTION_BUDGET`; undefined if it is not known. */
  connectionBudget?: number | undefined;
  /** Called with the size of the database of each selected tenant that can be measured. */
  onSize?: ((tenant: CheckedTenant, bytes: number) => void) | undefined;
  /** Called for each selected tenant, when its database was checked, or cannot be. */
  onTenant?: ((hasFindings: boolean) => void) | undefined;
}

/**
 * Checks the databases and roles of one server, and the databases of its selected tenants
 * inside.
 */
export async function checkServer(
  installation: Installation,
  server: Server,
  control: ControlFacts,
  { isSelected, connectionBudget, onSize, onTenant }: Options,
): Promise<{ findings: Finding[]; measured?: ServerMeasures }> {
  const selected = control.tenants.filter(
    tenant => tenant.server.id === server.id && isSelected(tenant),
  );

  let adminUrl: string;
  try {
    adminUrl = installation.servers.adminUrl(server);
  } catch {
    for (const _ of selected) onTenant?.(true);
    return { findings: [] }; // checkControl reports that the URL cannot be decrypted
  }

  try {
    const sharing = await findSharedSessions(server, adminUrl);
    if (sharing) return { findings: [toFinding(server.name, sharing)] };

    const recorded = new Set([
      ...control.tenants.flatMap(each => (each.server.id === server.id ? [each.databaseName] : [])),
      ...control.databases.flatMap(each => (each.serverId === server.id ? [each.database] : [])),
    ]);
    const own = { databases: [...recorded], isControl: server.adminUrl === null };

    const { facts, settings, others, sessions, isRoomKnown, ending } = await withConnection(
      adminUrl,
      async client => {
        const facts = await readServerFacts(client, server.prefix);
        const logins = loginsOf(server, control, facts, installation.controlUrl);

        return {
          facts,
          settings: await readServerSettings(client),
          others: await readOthers(client, own),
          sessions: await readTenantSessions(client, rolesOfTenants(server, control)),
          isRoomKnown: server.diskGb !== null || (await readOwnDisk(client)) !== undefined,
          ending: await readEndingLogins(client, logins),
        };
      },
      { settings: catalogQuerySettings },
    );
    if (onSize) await measureDatabases(adminUrl, selected, onSize);

    const { identities: orphanIdentities, notEntered } = await readOrphanIdentities(
      adminUrl,
      facts,
      recorded,
    );

    const fingerprint = await headFingerprint(installation.control, server, adminUrl);
    const comparison = createSchemaComparison(installation.control, server, fingerprint);
    const earlier = createEarlierComparison(installation.control, server);
    const head = { version: await tenantHead(), fingerprint, comparison, earlier };

    const examined = selected.filter(
      tenant => isStable(tenant, control) && isUsable(facts.databases, tenant),
    );
    for (let count = examined.length; count < selected.length; count++) onTenant?.(false);

    const guids = new Set([...control.tenants.map(({ guid }) => guid), ...control.purgedTenants]);
    const findings = await checkTenants(
      installation,
      examined,
      { head, guids, limitedUsers: control.limitedUsers },
      onTenant,
    );

    const builds = { own: await migrationsDigest(), newer: await newerDigests(installation) };
    const serverFindings = checkServerFacts(
      installation,
      server,
      control,
      facts,
      orphanIdentities,
      builds,
      ending,
    );

    const settingFindings = [
      ...checkServerSettings(settings, connectionBudget),
      ...checkOthers(others, settings.connections, connectionBudget),
      ...checkSessions(sessions, connectionBudget),
      ...(isRoomKnown ? [] : [unknownRoom(server)]),
    ].map(each => toFinding(server.name, withinRights(each, facts)));

    const { databases, archivedAt, archiveFails, receivers, lagBytes } = settings;
    const measured = {
      server: server.name,
      databases,
      archivedAt: archivedAt?.toISOString() ?? null,
      archiveFails,
    };

    return {
      findings: [...settingFindings, ...serverFindings, ...findings],
      measured: { ...measured, receivers, lagBytes, notEntered },
    };
  } catch (error) {
    const unreachable = toFinding(server.name, {
      check: 'server_unreachable',
      problem: `it cannot be used: ${connectFailure(error) ?? errorText(error)}`,
      remedy: `None of its tenants was checked. Start the server${otherUrl(server)}`,
    });
    return { findings: [unreachable] };
  }
}

/** Measures the databases that can be measured: a missing size is no finding. */
async function measureDatabases(
  adminUrl: string,
  tenants: readonly CheckedTenant[],
  onSize: (tenant: CheckedTenant, bytes: number) => void,
): Promise<void> {
  const sizes = await readDatabaseSizes(
    adminUrl,
    tenants.map(({ databaseName }) => databaseName),
  ).catch(() => new Map());

  for (const tenant of tenants) {
    const bytes = sizes.get(tenant.databaseName);
    if (bytes !== undefined) onSize(tenant, bytes);
  }
}

function isUsable(databases: ServerFacts['databases'], { databaseName }: CheckedTenant): boolean {
  const database = databases.get(databaseName);
  return database?.open === true && !database.broken;
}

/**
 * Compares the databases and roles of a server with what the control database records. Makes no
 * query.
 */
function checkServerFacts(
  { secrets }: Installation,
  server: Server,
  control: ControlFacts,
  facts: ServerFacts,
  orphanIdentities: ReadonlyMap<string, string>,
  builds: TemplateBuilds,
  ending: readonly EndingLogin[],
): Finding[] {
  const findings: Finding[] = [];
  const context: CheckContext = {
    server,
    tenants: control.tenants.filter(tenant => tenant.server.id === server.id),
    control,
    facts,
    orphanIdentities,
    secrets,
    report: report =>
      findings.push(
        toFinding(server.name, withinRights(withoutRisk(report, orphanIdentities), facts)),
      ),
  };

  for (const tenant of context.tenants.filter(each => isStable(each, control))) {
    const ofTenant = {
      ...context,
      report: (report: Report) => context.report({ ...report, tenant: tenant.slug }),
    };
    checkTenantDatabase(tenant, ofTenant);
    checkTenantRole(tenant, ofTenant);
  }

  checkOrphans(context);
  checkUnusedDatabases(context);
  checkIdleDatabases(context);
  checkOldTemplates(context, builds);
  checkOwnTemplate(context, builds);
  checkDrillDatabases(context);
  checkPublicAccess(context);
  checkOperatorRights(context);
  checkLogins(context, ending);
  checkTenantGroup(context);

  return findings;
}

/**
 * Returns the logins of the installation on a server: those of its tenants, that of the
 * commands, and, where the control database is, that of the service.
 */
function loginsOf(
  server: Server,
  { tenants }: ControlFacts,
  { login }: ServerFacts,
  controlUrl: string,
): string[] {
  const placed = tenants.filter(tenant => tenant.server.id === server.id);
  const ofService = server.adminUrl === null ? [serviceLoginOf(controlUrl)] : [];

  return [login, ...ofService, ...placed.map(({ roleName }) => roleName)];
}

/** Returns the logins of tenants on a server, with those of databases that serve nobody. */
function rolesOfTenants(server: Server, { tenants, databases }: ControlFacts): string[] {
  const placed = tenants.filter(tenant => tenant.server.id === server.id);
  const recorded = databases.filter(({ serverId }) => serverId === server.id);

  return [...placed.map(({ roleName }) => roleName), ...recorded.map(({ role }) => role)];
}

/**
 * False while a command provisions, moves or changes the tenant. checkControl reports what no
 * process continues.
 */
function isStable(tenant: CheckedTenant, control: ControlFacts): boolean {
  return (
    tenant.status !== 'provisioning' && !control.fences.has(tenant.guid) && !control.isBusy(tenant)
  );
}

/**
 * Removes the automatic repair of a database that no tenant has and that holds data of a
 * tenant, or may hold it: an operator may intend to rename it back, or to restore from it.
 */
function withoutRisk(report: Report, orphanIdentities: ReadonlyMap<string, string>): Report {
  const { changes, statements, kind, ...rest } = report;
  if (!statements || kind === 'named' || changes === undefined || !orphanIdentities.has(changes)) {
    return report;
  }

  const remedy =
    'The database may hold data of a tenant. If it does not, or nobody needs it: ' +
    `${psqlCommand(statements)}`;

  return { ...rest, remedy };
}

/** The remedy that gives the commands another URL of a server. */
function otherUrl({ name, adminUrl }: Server): string {
  return adminUrl === null
    ? ', or correct DATABASE_URL.'
    : `, or give another URL of it: bin/backoffice server add ${name}`;
}

/**
 * Asks for the size of a disk that no command can see. Without it, a copy of a database may
 * fill the disk, and the server stops for all of its tenants.
 */
function unknownRoom({ name }: Server): Report {
  return {
    check: 'unknown_room',
    problem:
      'the size of its disk is not known, so no copy of a database is compared with its room',
    remedy: `State it: bin/backoffice server set ${name} --disk-gb GIB`,
  };
}

/** Finds a pooler in transaction or statement mode between this process and a server. */
async function findSharedSessions(server: Server, url: string): Promise<Report | undefined> {
  try {
    await requireOwnSession(url);
    return undefined;
  } catch (error) {
    if (!(error instanceof SharedSessionError)) throw error;
    const problem =
      'the URL of the server leads to a pooler in transaction or statement mode, which gives ' +
      'locks, settings and notifications of one session to another';
    const remedy = `None of its tenants was checked. Set the pooler to session mode${otherUrl(server)}`;
    return { check: 'shared_sessions', problem, remedy };
  }
}
