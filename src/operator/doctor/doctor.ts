import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { checkControl } from './check-control.ts';
import { checkServer } from './check-server.ts';
import { type ControlFacts, readControlFacts } from './control-facts.ts';
import { type Finding, findingKey } from './finding.ts';
import { repair } from './repair.ts';

export interface Diagnosis {
  /** How many servers and tenants were checked. */
  servers: number;
  tenants: number;
  findings: (Finding & { fixed: boolean })[];
}

interface Progress {
  /** Called before the first tenant is checked. */
  onStart?: (tenants: number) => void;
  /** Called after each tenant was checked. */
  onTenant?: (hasFindings: boolean) => void;
}

interface Options extends Progress {
  /** True to make the repairs that have no risk. */
  fix?: boolean | undefined;
}

/**
 * Checks the whole installation: the control database, the servers, and the contents of the tenant databases. When
 * there are findings, it checks their servers and tenants a second time and returns only the findings that recur: the
 * others were changes in progress. After repairs it checks again: `fixed` are the findings that are gone, also
 * those that another repair removed, and findings that appear only now are added.
 */
export async function diagnose(
  installation: Installation,
  { fix = false, ...progress }: Options = {},
): Promise<Diagnosis> {
  const first = await runChecks(installation, progress);
  const second = first.findings.length > 0 ? await runChecks(installation, {}, first.findings) : first;
  const firstKeys = new Set(first.findings.map(findingKey));
  const findings: Diagnosis['findings'] = [];
  for (const finding of second.findings.filter(each => firstKeys.has(findingKey(each)))) {
    const server = second.control.servers.find(({ name }) => name === finding.server);
    findings.push(fix && server ? await repair(installation, server, finding) : { ...finding, fixed: false });
  }
  const counts = { servers: first.control.servers.length, tenants: first.control.tenants.length };
  if (!findings.some(({ fixed }) => fixed)) return { ...counts, findings };

  const left = await recurringFindings(installation, findings);
  const leftKeys = new Set(left.map(findingKey));
  const knownKeys = new Set(findings.map(findingKey));
  const uncovered = left.filter(finding => !knownKeys.has(findingKey(finding)));
  return {
    ...counts,
    findings: [
      ...findings.map(finding => ({ ...finding, fixed: !leftKeys.has(findingKey(finding)) })),
      ...uncovered.map(finding => ({ ...finding, fixed: false })),
    ],
  };
}

/** Checks the servers and tenants of findings twice. @returns the findings of both checks */
async function recurringFindings(installation: Installation, only: Finding[]): Promise<Finding[]> {
  const { findings } = await runChecks(installation, {}, only);
  if (findings.length === 0) return [];
  const keys = new Set(findings.map(findingKey));
  return (await runChecks(installation, {}, only)).findings.filter(finding => keys.has(findingKey(finding)));
}

/** @param only findings: checks only the servers and tenant databases that they name */
async function runChecks(
  installation: Installation,
  { onStart, onTenant }: Progress,
  only?: Finding[],
): Promise<{ control: ControlFacts; findings: Finding[] }> {
  const control = await withConnection(installation.controlUrl, client => readControlFacts(installation, client));
  onStart?.(control.tenants.length);
  const serverNames = only && new Set(only.map(({ server }) => server));
  const slugs = only && new Set(only.map(({ tenant }) => tenant));
  const servers = control.servers.filter(({ name }) => !serverNames || serverNames.has(name));
  const isSelected = ({ slug }: { slug: string }) => !slugs || slugs.has(slug);
  const findings = await Promise.all([
    checkControl(installation, control),
    ...servers.map(server => checkServer(installation, server, control, { isSelected, onTenant })),
  ]);
  return { control, findings: findings.flat() };
}
