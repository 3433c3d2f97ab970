import pLimit from 'p-limit';
import type { Server, Tenant } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { errorText } from '../error-text.ts';
import { migrationsDigest } from '../schema/template.ts';
import { headFingerprint } from '../schema/template-fingerprint.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import type { CheckContext } from './check-context.ts';
import { checkOldTemplates, checkTenantDatabase, checkWarmDatabases } from './check-databases.ts';
import { checkOrphans } from './check-orphans.ts';
import { checkPublicAccess } from './check-public-access.ts';
import { checkTenant } from './check-tenant.ts';
import { checkTenantGroup } from './check-tenant-group.ts';
import { checkTenantRole } from './check-tenant-role.ts';
import type { ControlFacts } from './control-facts.ts';
import { type Finding, type Report, toFinding } from './finding.ts';
import { readServerFacts, type ServerFacts } from './server-facts.ts';
import { readUnclaimedIdentities } from './unclaimed-databases.ts';

/** Tenant databases that are checked at the same time, and so connections to each server. */
const concurrency = 4;

interface Options {
  /** Which tenant databases are checked inside. */
  isSelected: (tenant: Tenant) => boolean;
  /** Called for each selected tenant, when its database was checked. */
  onTenant?: ((hasFindings: boolean) => void) | undefined;
}

/** Checks the databases and roles of one server, and the databases of its selected tenants inside. */
export async function checkServer(
  installation: Installation,
  server: Server,
  control: ControlFacts,
  { isSelected, onTenant }: Options,
): Promise<Finding[]> {
  const selected = control.tenants.filter(tenant => tenant.server.id === server.id && isSelected(tenant));
  let adminUrl: string;
  try {
    adminUrl = installation.servers.adminUrl(server);
  } catch {
    for (const _ of selected) onTenant?.(true);
    return []; // checkControl reports that the URL cannot be decrypted
  }
  try {
    const facts = await withConnection(adminUrl, client => readServerFacts(client, server.prefix));
    const claimed = new Set(control.tenants.map(({ databaseName }) => databaseName));
    const unclaimedIdentities = await readUnclaimedIdentities(adminUrl, facts, claimed);
    const digest = await migrationsDigest();
    const head = {
      version: await tenantHead(),
      fingerprint: await headFingerprint(installation.control, server, adminUrl),
    };
    const usable = new Set(facts.databases.filter(({ open, broken }) => open && !broken).map(({ name }) => name));
    const limit = pLimit(concurrency);
    const tenantFindings = await limit.map(selected, async tenant => {
      const canCheck = isStable(tenant, control) && usable.has(tenant.databaseName);
      const findings = canCheck
        ? await checkTenant(installation, tenant, head).catch((error: unknown) => [notExamined(tenant, error)])
        : [];
      onTenant?.(findings.length > 0);
      return findings;
    });
    return [
      ...checkServerFacts(installation, server, control, facts, unclaimedIdentities, digest),
      ...tenantFindings.flat(),
    ];
  } catch (error) {
    return [
      toFinding(server.name, {
        check: 'server_unreachable',
        problem: `server ${server.name}: ${errorText(error)}`,
        remedy: 'Start the server, or correct its URL. None of its tenants was checked.',
      }),
    ];
  }
}

/** Compares the databases and roles of a server with what the control database records. Makes no query. */
function checkServerFacts(
  { secrets }: Installation,
  server: Server,
  control: ControlFacts,
  facts: ServerFacts,
  unclaimedIdentities: ReadonlyMap<string, string>,
  digest: string,
): Finding[] {
  const findings: Finding[] = [];
  const context: CheckContext = {
    server,
    tenants: control.tenants.filter(tenant => tenant.server.id === server.id),
    control,
    facts,
    unclaimedIdentities,
    secrets,
    report: report => findings.push(toFinding(server.name, withoutRisk(report, unclaimedIdentities))),
  };
  for (const tenant of context.tenants.filter(each => isStable(each, control))) {
    checkTenantDatabase(tenant, context);
    checkTenantRole(tenant, context);
  }
  checkOrphans(context);
  checkWarmDatabases(context);
  checkOldTemplates(context, digest);
  checkPublicAccess(context);
  checkTenantGroup(context);
  return findings;
}

/**
 * False while a command provisions or changes the tenant. checkControl reports provisioning that no process continues.
 */
function isStable(tenant: Tenant, control: ControlFacts): boolean {
  return tenant.status !== 'provisioning' && !control.isBusy(tenant);
}

function notExamined({ slug, databaseName, server }: Tenant, error: unknown): Finding {
  return toFinding(server.name, {
    check: 'not_examined',
    tenant: slug,
    problem: `database ${databaseName} was not checked: ${errorText(error)}`,
    remedy: 'Find out why the database does not respond, then check it again: npm run -s tenant -- doctor',
  });
}

/**
 * Removes the automatic repair of a database that no tenant has and that holds data of a tenant, or may hold it: an
 * operator may intend to rename it back, or to restore from it.
 */
function withoutRisk(report: Report, unclaimedIdentities: ReadonlyMap<string, string>): Report {
  const { changes, statements, ...rest } = report;
  if (!statements || changes === undefined || !unclaimedIdentities.has(changes)) return report;
  const commands = `${statements.join('; ')};`;
  const remedy = `The database may hold data of a tenant. If it does not, or nobody needs it: ${commands}`;
  return { ...rest, remedy };
}
