import { controlHead, controlVersion } from '../../control/control-version.ts';
import type { Installation } from '../../control/installation.ts';
import { canServe, type SchemaVersion } from '../../control/schema-version.ts';
import { tenantHead } from '../../control/tenant-head.ts';
import { loadMigrations } from '../../lib/postgres/migration-steps.ts';
import { lastOutcome, type RunRequest } from './migration-runs.ts';
import { type RunningService, runningServices } from './running-services.ts';
import { compatibleFrom, readSchemaSteps, versionOf } from './schema-steps.ts';

/**
 * A running process of the service that can use a schema now and could not use it after a
 * change.
 */
export interface BlockingProcess extends RunningService {
  /**
   * The number of tenants that the process would stop serving; absent for a change of the
   * control database.
   */
  tenants?: number;
}

/** A change of the schema of some tenants, or of the control database. */
interface SchemaChange {
  before: SchemaVersion;
  after: SchemaVersion;
  /** The number of tenants that are at the version `before`. */
  tenants: number;
}

/**
 * Returns the running processes that can serve tenants of a run now, and could not serve them
 * at head.
 * @throws {OperatorError} when a migration cannot run over a fleet
 */
export async function processesBlockingRun(
  installation: Installation,
  { slugs, retryFailed = false }: Pick<RunRequest, 'slugs' | 'retryFailed'>,
): Promise<BlockingProcess[]> {
  const head = await tenantHead();
  const after = { schemaVersion: head, compatibleFrom: compatibleFrom(await readSchemaSteps()) };
  const only = slugs ? JSON.stringify(slugs) : null;
  const { rows: versions } = await installation.statements.query<
    SchemaVersion & { tenants: number }
  >(
    `select schema_version as "schemaVersion", compatible_from as "compatibleFrom", count(*)::int as tenants
       from tenants t
      where status <> 'provisioning' and ($1::jsonb is null or slug in (select jsonb_array_elements_text($1::jsonb)))
        and (not $2::boolean or ${lastOutcome} = 'failed')
      group by 1, 2`,
    [only, retryFailed],
  );

  // A run refuses a tenant of a later build, and does not change it.
  const changed = versions.filter(
    ({ schemaVersion }) => schemaVersion !== null && schemaVersion < head,
  );
  const changes = changed.map(({ tenants, ...before }) => ({ before, after, tenants }));

  return blockingProcesses(await runningServices(installation, 'tenant'), changes);
}

/**
 * Returns the running processes that can serve a tenant now, and could not serve it without its
 * last migration.
 */
export async function processesBlockingRollback(
  installation: Installation,
  slug: string,
): Promise<BlockingProcess[]> {
  const { rows } = await installation.statements.query<SchemaVersion>(
    'select schema_version as "schemaVersion", compatible_from as "compatibleFrom" from tenants where slug = $1',
    [slug],
  );
  const [before] = rows;
  if (!before) return [];

  const steps = await readSchemaSteps();
  const undone = steps.findIndex(({ name }) => name === before.schemaVersion);
  const remaining = steps.slice(0, Math.max(0, undone));
  const after = versionOf(
    remaining.map(({ name }) => name),
    steps,
  );

  return blockingProcesses(await runningServices(installation, 'tenant'), [
    { before, after, tenants: 1 },
  ]);
}

/**
 * Returns the running processes that could start on the control database now, and could not
 * start after its migration. They go on after it, but one that fails or is restarted does not
 * come back.
 */
export async function processesBlockingControl(
  installation: Installation,
): Promise<BlockingProcess[]> {
  const [version, head] = await Promise.all([
    controlVersion(installation.statements),
    controlHead(),
  ]);
  if (version === undefined || version >= head) return [];
  const migrations = await loadMigrations('control');
  const applied = migrations.filter(({ name }) => name <= version);
  const before = { schemaVersion: version, compatibleFrom: compatibleFrom(applied) };
  const after = { schemaVersion: head, compatibleFrom: compatibleFrom(migrations) };
  const processes = await runningServices(installation, 'control');
  return processes.filter(process => isCutOff(process.head, before, after));
}

function blockingProcesses(
  processes: RunningService[],
  changes: SchemaChange[],
): BlockingProcess[] {
  return processes.flatMap(process => {
    const lost = changes.filter(({ before, after }) => isCutOff(process.head, before, after));
    return lost.length > 0
      ? [{ ...process, tenants: lost.reduce((sum, { tenants }) => sum + tenants, 0) }]
      : [];
  });
}

/**
 * Returns true if a build can use a schema before a change and cannot afterwards. A process
 * that starts has not registered the last migration of its build yet: it counts as one that can
 * use the schema now, and goes on with compatible migrations only.
 */
function isCutOff(head: string | null, before: SchemaVersion, after: SchemaVersion): boolean {
  if (head !== null) return canServe(head, before) && !canServe(head, after);
  return before.schemaVersion !== null && !canServe(before.schemaVersion, after);
}
