import type { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { errorText } from '../command/texts.ts';
import { checkControl } from './check-control.ts';
import { checkServer } from './check-server.ts';
import { type CheckedTenant, type ControlFacts, readControlFacts } from './control-facts.ts';
import { type Check, type Finding, findingId, findingKey } from './finding.ts';
import { psqlCommand } from './psql-command.ts';
import {
  type DoctorReport,
  type ReportedFinding,
  type ServerMeasures,
  thisBuild,
} from './reports.ts';

interface Options {
  /** True to make repairs. */
  fix?: boolean | undefined;
  /** The ids of the findings to repair; none: all whose repair has no risk. */
  chosen?: readonly string[] | undefined;
  /** True to open no tenant database. */
  controlOnly?: boolean | undefined;
  /**
   * `CONNECTION_BUDGET`, which each server must have room for; without it, that is not checked.
   */
  connectionBudget?: number | undefined;
  /**
   * Called with the size of the database of each tenant that can be measured, which is then
   * known.
   */
  onSize?: ((tenant: Pick<CheckedTenant, 'id'>, bytes: number) => void) | undefined;
  /** Called before the first tenant is checked. */
  onStart?: ((tenants: number) => void) | undefined;
  /** Called after each tenant was checked. */
  onTenant?: ((hasFindings: boolean) => void) | undefined;
}

type CheckOptions = Omit<Options, 'fix' | 'chosen'>;
/** The server and the tenant that a check is limited to. */
type Place = Pick<Finding, 'server' | 'tenant'>;

interface Checked {
  control: ControlFacts;
  measured: ServerMeasures[];
  findings: Finding[];
}

/**
 * Checks the whole installation: the control database, the servers, and the contents of the
 * tenant databases. When there are findings, it checks their servers and tenants a second time
 * and returns only the findings that recur: the others were changes in progress. After repairs
 * it checks again: `fixed` are the findings that are gone, also those that another repair
 * removed, and findings that appear only now are added.
 */
export async function diagnose(
  installation: Installation,
  { fix = false, chosen = [], ...options }: Options = {},
): Promise<DoctorReport> {
  const { control, measured, findings: found } = await checkTwice(installation, options);
  let findings: ReportedFinding[] = [];
  for (const finding of found) {
    const reported = toReported(finding);
    const server = control.servers.find(({ name }) => name === finding.server);
    const isChosen =
      chosen.length === 0 ? finding.repair?.kind === 'safe' : chosen.includes(reported.id);
    findings.push(
      fix && isChosen && server
        ? { ...reported, ...(await repair(installation, server, finding)) }
        : reported,
    );
  }

  if (findings.some(({ fixed }) => fixed)) {
    const { connectionBudget, controlOnly } = options;
    const { findings: left } = await checkTwice(
      installation,
      { connectionBudget, controlOnly },
      findings,
    );
    const leftKeys = new Set(left.map(findingKey));
    const knownKeys = new Set(findings.map(findingKey));
    findings = [
      ...findings.map(finding => ({ ...finding, fixed: !leftKeys.has(findingKey(finding)) })),
      ...left.filter(finding => !knownKeys.has(findingKey(finding))).map(toReported),
    ];
  }

  return {
    build: await thisBuild(),
    healthy: findings.every(({ fixed, severity }) => fixed || severity === 'warning'),
    servers: control.servers.length,
    tenants: control.tenants.length,
    measured,
    findings,
  };
}

function toReported({ repair, ...finding }: Finding): ReportedFinding {
  return { ...finding, id: findingId(finding), repair: repair?.kind ?? null, fixed: false };
}

/**
 * Runs the checks. If there are findings, checks their servers and tenants again, and returns
 * the findings that recur.
 */
async function checkTwice(
  installation: Installation,
  options: CheckOptions,
  only?: Place[],
): Promise<Checked> {
  const first = await runChecks(installation, options, only);
  if (!first.findings.some(isTransient)) return first;
  const { connectionBudget, controlOnly } = options;
  const { findings } = await runChecks(
    installation,
    { connectionBudget, controlOnly },
    first.findings,
  );
  const keys = new Set(first.findings.map(findingKey));
  return { ...first, findings: findings.filter(finding => keys.has(findingKey(finding))) };
}

/** The findings that no change in progress causes: they are not checked twice. */
const steady: ReadonlySet<Check> = new Set([
  'few_connections',
  'unverified_tls',
  'notify_queue_held',
]);

function isTransient({ check }: Finding): boolean {
  return !steady.has(check);
}

/** @param only findings: checks only the servers and tenant databases that they name */
async function runChecks(
  installation: Installation,
  { controlOnly = false, connectionBudget, onSize, onStart, onTenant }: CheckOptions,
  only?: Place[],
): Promise<Checked> {
  const control = await withConnection(installation.controlUrl, client =>
    readControlFacts(installation, client),
  );
  onStart?.(controlOnly ? 0 : control.tenants.length);

  const serverNames = only && new Set(only.map(({ server }) => server));
  const slugs = only && new Set(only.map(({ tenant }) => tenant));
  const servers = control.servers.filter(({ name }) => !serverNames || serverNames.has(name));
  const isSelected = ({ slug }: { slug: string }) => !controlOnly && (!slugs || slugs.has(slug));

  const controlFindings = checkControl(installation, control);
  const results = await Promise.all(
    servers.map(server =>
      checkServer(installation, server, control, {
        isSelected,
        connectionBudget,
        onSize,
        onTenant,
      }),
    ),
  );

  return {
    control,
    measured: results.flatMap(({ measured }) => measured ?? []),
    findings: [...controlFindings, ...results.flatMap(({ findings }) => findings)],
  };
}

/**
 * SQLSTATE of the warning with which REVOKE has no effect: the login has not granted the right.
 */
const notRevoked = '01006';

/**
 * Runs the statements that repair a finding. `fixed` is false when it has none, or one of them
 * failed.
 */
async function repair(
  { servers, controlUrl }: Installation,
  server: Server,
  finding: Finding,
): Promise<Pick<ReportedFinding, 'fixed' | 'remedy'>> {
  const { remedy } = finding;
  if (!finding.repair) return { fixed: false, remedy };
  const { database, statements, control } = finding.repair;

  try {
    await withConnection(servers.adminUrl(server, database), async client => {
      const warnings: string[] = [];
      client.on(
        'notice',
        ({ code, message = '' }) => code === notRevoked && warnings.push(message),
      );

      for (const statement of statements) await client.query(statement);
      if (warnings.length > 0) {
        throw Object.assign(new Error(warnings.join('; ')), { code: '42501' });
      }
    });

    if (control) {
      await withConnection(controlUrl, client => client.query(control.text, control.values));
    }

    return { fixed: true, remedy };
  } catch (error) {
    return {
      fixed: false,
      remedy:
        sqlState(error) === '42501'
          ? forSuperuser(finding.repair, errorText(error))
          : `Repair it yourself; doctor --fix failed: ${errorText(error)}`,
    };
  }
}

/** Returns the remedy for a superuser. It has no statement with the verifier of a password. */
function forSuperuser(
  { database, statements }: NonNullable<Finding['repair']>,
  reason: string,
): string {
  if (statements.some(statement => statement.includes('password'))) {
    return (
      'Give the login of this command the right to do it, as a superuser; it may not ' +
      `(${reason})`
    );
  }

  return `As a superuser of the server: ${psqlCommand(statements, database)}`;
}
