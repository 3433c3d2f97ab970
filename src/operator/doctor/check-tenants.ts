import pLimit from 'p-limit';
import type { Installation } from '../../installation.ts';
import { type ChangeCounters, isProvedUnchanged } from '../../postgres/change-counters.ts';
import { errorText } from '../command/texts.ts';
import type { Head } from './check-schema.ts';
import { checkTenant } from './check-tenant.ts';
import { openPassword } from './check-tenant-role.ts';
import { recordCheckedDatabases } from './checked-databases.ts';
import type { CheckedTenant } from './control-facts.ts';
import { type Finding, toFinding } from './finding.ts';

/** Tenant databases that are checked at the same time, and so connections to each server. */
const concurrency = 4;

interface Options {
  head: Head;
  /** Evidence about the databases, read before they are opened, by the id of the tenant. */
  evidence: ReadonlyMap<number, ChangeCounters>;
  /** The evidence with which nothing was wrong, by the id of the tenant; empty to open all databases. */
  checked: ReadonlyMap<number, string>;
  /** Called for each tenant, when its database was checked or left out. */
  onTenant: ((hasFindings: boolean) => void) | undefined;
}

/**
 * Checks the databases of tenants inside, except those that are proved unchanged since nothing was wrong in them.
 * Records the evidence of the databases in which nothing is wrong.
 * @returns the findings, and the number of databases that were left out
 */
export async function checkTenants(
  installation: Installation,
  tenants: readonly CheckedTenant[],
  { head, evidence, checked, onTenant }: Options,
): Promise<{ findings: Finding[]; unchanged: number }> {
  const isUnchanged = ({ id }: CheckedTenant): boolean => isProvedUnchanged(checked.get(id), evidence.get(id));
  const opened = tenants.filter(tenant => !isUnchanged(tenant));
  const unchanged = tenants.length - opened.length;
  for (let count = 0; count < unchanged; count++) onTenant?.(false);

  const healthy = new Map<number, string>();
  const others: number[] = [];
  const findings = await pLimit(concurrency).map(opened, async tenant => {
    const found = await checkTenant(installation, tenant, head).catch((error: unknown) => [notExamined(tenant, error)]);
    const fingerprint = evidence.get(tenant.id)?.fingerprint;
    // Without its password, the check has not logged in as the tenant.
    const isHealthy = found.length === 0 && openPassword(tenant, installation.secrets) !== undefined;
    if (isHealthy && fingerprint !== undefined) healthy.set(tenant.id, fingerprint);
    else others.push(tenant.id);
    onTenant?.(found.length > 0);
    return found;
  });
  await recordCheckedDatabases(installation.statements, healthy, others);
  return { findings: findings.flat(), unchanged };
}

function notExamined({ slug, databaseName, server }: CheckedTenant, error: unknown): Finding {
  return toFinding(server.name, {
    check: 'not_examined',
    tenant: slug,
    problem: `database ${databaseName} was not checked: ${errorText(error)}`,
    remedy: 'Find out why the database does not respond, then check it again: npx backoffice doctor',
  });
}
