import pLimit from 'p-limit';
import type { Server, Tenant } from '../../control/fleet-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { shortText } from '../migrations/migrate-tenant.ts';
import { tenantHead } from '../migrations/migrate-tenants.ts';
import { digestOfMigrations } from '../schema/template.ts';
import { headFingerprint } from '../schema/template-fingerprint.ts';
import { type ControlFacts, checkControl, readControlFacts } from './check-control.ts';
import { checkServer } from './check-server.ts';
import { checkTenant, type Head } from './check-tenant.ts';
import { type Finding, keyOf } from './finding.ts';
import { readServerFacts } from './server-facts.ts';

export interface Diagnosis {
  servers: number;
  tenants: number;
  findings: (Finding & { fixed: boolean })[];
}

interface Options {
  /** Mend what can be mended without a risk. */
  fix?: boolean | undefined;
  onStart?: (tenants: number) => void;
  onTenant?: (wrong: boolean) => void;
}

/** Tenant databases that are checked at the same time, and so connections to each server. */
const concurrency = 4;

/**
 * Looks for everything that is wrong anywhere: in the control database, on the servers, and inside the tenant databases.
 * What a second look does not find any more was somebody's work under way, and is not told.
 */
export async function diagnose(
  installation: Installation,
  { fix, onStart, onTenant }: Options = {},
): Promise<Diagnosis> {
  const look = async (only?: Finding[]) => {
    const control = await withConnection(installation.controlUrl, client => readControlFacts(installation, client));
    if (!only) onStart?.(control.tenants.length);
    const servers = control.servers.filter(({ name }) => !only || only.some(({ server }) => server === name));
    const slugs = only && new Set(only.map(({ tenant }) => tenant));
    const wanted = ({ slug }: Tenant) => !slugs || slugs.has(slug);
    const found = await Promise.all([
      checkControl(installation, control),
      ...servers.map(server => lookAtServer(installation, server, control, wanted, only ? undefined : onTenant)),
    ]);
    return { control, findings: found.flat() };
  };
  const first = await look();
  const again = first.findings.length > 0 ? await look(first.findings) : first;
  const before = new Set(first.findings.map(keyOf));
  const findings: Diagnosis['findings'] = [];
  for (const finding of again.findings.filter(each => before.has(keyOf(each)))) {
    const server = again.control.servers.find(({ name }) => name === finding.server);
    findings.push(fix && server ? await repair(installation, server, finding) : { ...finding, fixed: false });
  }
  return { servers: first.control.servers.length, tenants: first.control.tenants.length, findings };
}

async function lookAtServer(
  installation: Installation,
  server: Server,
  control: ControlFacts,
  wanted: (tenant: Tenant) => boolean,
  onTenant?: (wrong: boolean) => void,
): Promise<Finding[]> {
  const { servers, secrets } = installation;
  const tenants = control.tenants.filter(tenant => tenant.server.id === server.id && wanted(tenant));
  const of = (check: Finding['check'], tenant: string | null, problem: string, remedy: string): Finding => ({
    check,
    server: server.name,
    tenant,
    problem,
    remedy,
  });
  let adminUrl: string;
  try {
    adminUrl = servers.adminUrl(server);
  } catch {
    for (const _ of tenants) onTenant?.(true);
    return []; // that it does not open was said
  }
  try {
    const facts = await withConnection(adminUrl, client => readServerFacts(client, server.prefix));
    const findings = checkServer(server, control, facts, secrets, await digestOfMigrations());
    const head: Head = {
      version: await tenantHead(),
      fingerprint: await headFingerprint(installation.control, server, adminUrl),
    };
    const usable = new Set(facts.databases.filter(({ open, broken }) => open && !broken).map(({ name }) => name));
    const limit = pLimit(concurrency);
    const inside = await limit.map(tenants, async tenant => {
      const { slug, databaseName, status } = tenant;
      const examined = status !== 'provisioning' && !control.underWork(tenant) && usable.has(databaseName);
      const findingsInside = examined
        ? await checkTenant(installation, tenant, head).catch((error: unknown) => [
            of('not_examined', slug, `${databaseName}: ${shortText(error)}`, 'see what keeps it from answering'),
          ])
        : [];
      onTenant?.(findingsInside.length > 0);
      return findingsInside;
    });
    findings.push(...inside.flat());
    return findings;
  } catch (error) {
    const remedy = 'see that it runs and can be reached; none of its tenants was examined';
    return [of('server_unreachable', null, `${server.name}: ${shortText(error)}`, remedy)];
  }
}

async function repair(
  { servers }: Installation,
  server: Server,
  finding: Finding,
): Promise<Finding & { fixed: boolean }> {
  const { repair } = finding;
  if (!repair) return { ...finding, fixed: false };
  try {
    const adminUrl = servers.adminUrl(server);
    await withConnection(repair.database ? databaseUrl(adminUrl, repair.database) : adminUrl, async client => {
      for (const statement of repair.statements) await client.query(statement);
    });
    return { ...finding, fixed: true };
  } catch (error) {
    return { ...finding, fixed: false, remedy: `doctor --fix could not: ${shortText(error)}` };
  }
}
