import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { findingId, readAcceptances } from './accepted-findings.ts';
import { checkControl } from './check-control.ts';
import { checkServer } from './check-server.ts';
import { type ControlFacts, readControlFacts } from './control-facts.ts';
import { type Acceptance, type Finding, findingKey } from './finding.ts';
import { repair } from './repair.ts';

export interface Diagnosis {
  /** How many servers and tenants were checked. */
  servers: number;
  tenants: number;
  /** How many tenant databases were not opened, because they did not change since nothing was wrong inside. */
  unchanged: number;
  findings: Diagnosed[];
}

interface Diagnosed extends Finding {
  /** Names the finding in commands. */
  id: string;
  fixed: boolean;
  /** Null: no operator has accepted it. */
  accepted: Acceptance | null;
}

interface Progress {
  /** Called before the first tenant is checked. */
  onStart?: ((tenants: number) => void) | undefined;
  /** Called after each tenant was checked. */
  onTenant?: ((hasFindings: boolean) => void) | undefined;
}

interface Options extends Progress {
  /** True to make the repairs that have no risk. */
  fix?: boolean | undefined;
  /** True to open all tenant databases, also those that did not change. */
  full?: boolean | undefined;
  /** `CONNECTION_BUDGET`, which each server must have room for; without it, that is not checked. */
  connectionBudget?: number | undefined;
}

/**
 * Checks the whole installation: the control database, the servers, and the contents of the tenant databases that
 * changed since nothing was wrong inside. When there are findings, it checks their servers and tenants a second time
 * and returns only the findings that recur: the others were changes in progress. After repairs it checks again: `fixed`
 * are the findings that are gone, also those that another repair removed, and findings that appear only now are added.
 * Findings that an operator has accepted are not repaired.
 */
export async function diagnose(
  installation: Installation,
  { fix = false, full = false, onStart, onTenant, ...options }: Options = {},
): Promise<Diagnosis> {
  const first = await runChecks(installation, { full, onStart, onTenant, ...options });
  const second = first.findings.some(isTransient) ? await runChecks(installation, options, first.findings) : first;
  const firstKeys = new Set(first.findings.map(findingKey));
  const acceptances = await readAcceptances(installation.statements);
  const toDiagnosed = (finding: Finding, fixed: boolean): Diagnosed => ({
    ...finding,
    id: findingId(finding),
    fixed,
    accepted: acceptances.get(findingKey(finding)) ?? null,
  });
  const findings: Diagnosed[] = [];
  for (const finding of second.findings.filter(each => firstKeys.has(findingKey(each)))) {
    const server = second.control.servers.find(({ name }) => name === finding.server);
    const isRepaired = fix && server && !acceptances.has(findingKey(finding));
    const { fixed, ...rest } = isRepaired ? await repair(installation, server, finding) : { ...finding, fixed: false };
    findings.push(toDiagnosed(rest, fixed));
  }
  const { control, unchanged } = first;
  const counts = { servers: control.servers.length, tenants: control.tenants.length, unchanged };
  if (!findings.some(({ fixed }) => fixed)) return { ...counts, findings };

  const left = await recurringFindings(installation, options, findings);
  const leftKeys = new Set(left.map(findingKey));
  const knownKeys = new Set(findings.map(findingKey));
  const uncovered = left.filter(finding => !knownKeys.has(findingKey(finding)));
  return {
    ...counts,
    findings: [
      ...findings.map(finding => ({ ...finding, fixed: !leftKeys.has(findingKey(finding)) })),
      ...uncovered.map(finding => toDiagnosed(finding, false)),
    ],
  };
}

/** False for a finding about a setting of a server or its URL, which no change in progress causes. */
function isTransient({ check }: Finding): boolean {
  return check !== 'server_setting' && check !== 'unverified_tls';
}

/** Checks the servers and tenants of findings twice. @returns the findings of both checks */
async function recurringFindings(installation: Installation, options: Options, only: Finding[]): Promise<Finding[]> {
  const { findings } = await runChecks(installation, options, only);
  if (findings.length === 0) return [];
  const keys = new Set(findings.map(findingKey));
  return (await runChecks(installation, options, only)).findings.filter(finding => keys.has(findingKey(finding)));
}

/** @param only findings: checks only the servers and tenant databases that they name, changed or not */
async function runChecks(
  installation: Installation,
  { full = false, connectionBudget, onStart, onTenant }: Omit<Options, 'fix'>,
  only?: Finding[],
): Promise<{ control: ControlFacts; unchanged: number; findings: Finding[] }> {
  const control = await withConnection(installation.controlUrl, client => readControlFacts(installation, client));
  onStart?.(control.tenants.length);
  const serverNames = only && new Set(only.map(({ server }) => server));
  const slugs = only && new Set(only.map(({ tenant }) => tenant));
  const servers = control.servers.filter(({ name }) => !serverNames || serverNames.has(name));
  const isSelected = ({ slug }: { slug: string }) => !slugs || slugs.has(slug);
  const controlFindings = checkControl(installation, control);
  const results = await Promise.all(
    servers.map(server =>
      checkServer(installation, server, control, {
        isSelected,
        full: full || only !== undefined,
        connectionBudget,
        onTenant,
      }),
    ),
  );
  return {
    control,
    unchanged: results.reduce((sum, { unchanged }) => sum + unchanged, 0),
    findings: [...controlFindings, ...results.flatMap(({ findings }) => findings)],
  };
}
