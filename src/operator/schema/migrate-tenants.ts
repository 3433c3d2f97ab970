import { setTimeout as sleep } from 'node:timers/promises';
import { Server, Tenant } from '../../control/control-entities.ts';
import type { ControlStatements, Installation } from '../../control/installation.ts';
import { type RunState, SchemaFingerprint } from '../../control/migration-run.ts';
import { requireNoneLater, tenantHead } from '../../control/tenant-head.ts';
import { operatorPool, withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { fleetTasks } from '../command/fleet-tasks.ts';
import { type FleetObservers, runConcurrently } from '../command/run-fleet.ts';
import { errorText } from '../command/texts.ts';
import { guidOfFinding } from '../registry/done-since.ts';
import type { RunServer, SchemaRun } from './bring-to-head.ts';
import { readFailingTenants } from './fleet-status.ts';
import { migrateTenant } from './migrate-tenant.ts';
import {
  beginRun,
  endRun,
  type MigrationCandidate,
  type RunRequest,
  type TenantResult,
} from './migration-runs.ts';
import { createSchemaComparison } from './schema-comparison.ts';
import { readSchemaSteps } from './schema-steps.ts';
import { fingerprintKey, headFingerprint } from './template.ts';
import { waitUntil } from './tenant-schema.ts';

/** The result of a run for one tenant. */
export interface TenantOutcome extends TenantResult {
  slug: string;
}

export interface RunReport {
  id: number;
  state: RunState;
  /** The outcomes of the tenants that were not at head already. */
  outcomes: TenantOutcome[];
  /** The number of tenants that were not begun, because the run was halted. */
  skipped: number;
}

const defaultConcurrency = 4;
const busyRetryMs = 50;

/**
 * Brings tenant databases to head and records the run in the control database. A tenant at head
 * costs no connection; a tenant that fails does not affect the others. Two concurrent runs
 * share the work: each tenant is locked in the control database while it is migrated, and a run
 * retries the tenants that the other run works on after all others. `onRun` receives the number
 * of the run, unless there is nothing to do.
 */
export async function migrateTenants(
  installation: Installation,
  request: RunRequest = {},
  observers: FleetObservers<TenantOutcome> & { readonly onRun?: (id: number) => void } = {},
): Promise<RunReport> {
  const head = await tenantHead();
  const steps = await readSchemaSteps();
  const servers = await findServers(installation);
  const { controlUrl } = installation;
  const concurrency = fleetTasks(installation, request.concurrency ?? defaultConcurrency);

  // Commits of outcomes that arrive together cost one write to the disk.
  const controlPool = operatorPool(controlUrl, concurrency);

  const work = async (control: Queryable): Promise<RunReport> => {
    await requireNoneLater(control, request.slugs);
    const { id, candidates } = await beginRun(control, head, servers, request);
    if (candidates.some(({ atHead }) => !atHead)) observers.onRun?.(id);

    const run: SchemaRun = {
      id,
      installation,
      control,
      controlPool,
      steps,
      head,
      servers,
      receivedAt: 0,
    };

    try {
      const migration = new FleetMigration(run, { ...request, concurrency }, observers);
      const report = await migration.migrate(candidates);
      await waitUntil(run.receivedAt);
      await endRun(control, id, report.state, 'the run was halted before this tenant');
      return report;
    } catch (error) {
      await endRun(control, id, 'failed', errorText(error)).catch(() => {});
      throw error;
    }
  };

  return withConnection(controlUrl, work, { pipeline: true }).finally(() => controlPool.end());
}

/** The work of one run. */
class FleetMigration {
  readonly #run: SchemaRun;
  readonly #concurrency: number;
  readonly #canary: number;
  readonly #maxFailures: number;
  readonly #observers: FleetObservers<TenantOutcome>;
  readonly #outcomes: TenantOutcome[] = [];
  #failures = 0;

  constructor(
    run: SchemaRun,
    {
      concurrency,
      canary = 0,
      maxFailures = Number.POSITIVE_INFINITY,
    }: RunRequest & { concurrency: number },
    observers: FleetObservers<TenantOutcome>,
  ) {
    this.#run = run;
    this.#concurrency = concurrency;
    this.#canary = canary;
    this.#maxFailures = maxFailures;
    this.#observers = observers;
  }

  /** Migrates the canaries, and then, unless one of them fails, the other tenants. */
  async migrate(candidates: readonly MigrationCandidate[]): Promise<RunReport> {
    const pending = candidates.filter(({ atHead }) => !atHead);
    this.#observers.onStart?.(pending.length);

    const rest = pending.slice(this.#canary);
    let skipped = await this.#migrateAll(pending.slice(0, this.#canary));
    const hasFailedCanary = this.#canary > 0 && this.#failures > 0;
    skipped += hasFailedCanary ? rest.length : await this.#migrateAll(rest);

    const state = skipped > 0 ? 'halted' : this.#failures > 0 ? 'failed' : 'succeeded';
    return { id: this.#run.id, state, outcomes: this.#outcomes, skipped };
  }

  get #isHalted(): boolean {
    return this.#observers.signal?.aborted === true || this.#failures >= this.#maxFailures;
  }

  /**
   * Migrates tenants, those of each server beside those of the others. A tenant that another
   * process works on is retried after the others.
   * @returns the number of tenants that were not begun
   */
  async #migrateAll(tenants: readonly MigrationCandidate[]): Promise<number> {
    const servers = [...Map.groupBy(tenants, ({ serverId }) => serverId).values()];

    const left = await runConcurrently(servers, Number.POSITIVE_INFINITY, async queue => {
      for (let waiting = queue; ; await sleep(busyRetryMs)) {
        const done = await runConcurrently(waiting, this.#concurrency, each => this.#begin(each));
        waiting = waiting.filter((_, index) => !done[index]);
        if (waiting.length === 0 || this.#isHalted) return waiting.length;
      }
    });
    return left.reduce((sum, count) => sum + count, 0);
  }

  /** @returns false if the tenant was not begun */
  async #begin({ id, slug }: MigrationCandidate): Promise<boolean> {
    if (this.#isHalted) return false;
    const result = await migrateTenant(this.#run, id);
    if (result === 'busy') return false;

    if (result) {
      if (result.state === 'failed') this.#failures++;
      const outcome = { slug, ...result };
      this.#outcomes.push(outcome);
      this.#observers.onOutcome?.(outcome);
    }
    return true;
  }
}

/**
 * Returns the servers that have tenants, by id. The fingerprint of one that cannot be reached
 * is '': its tenants then fail one by one, and tenants on other servers are not affected.
 */
async function findServers({ control, servers }: Installation): Promise<Map<number, RunServer>> {
  const em = (await control()).em.fork();
  const used = await em.execute<{ id: number }[]>('select distinct server_id as id from tenants');
  const found = await em.find(Server, { id: { $in: used.map(({ id }) => id) } });

  const read = async (server: Server): Promise<[number, RunServer]> => {
    const fingerprint = await headFingerprint(control, server, servers.adminUrl(server)).catch(
      error => {
        // A SQLSTATE other than of a lost connection (08…) comes from PostgreSQL itself: a
        // migration is wrong.
        if (/^(?!08|EPIPE)[0-9A-Z]{5}$/.test(sqlState(error) ?? '')) throw error;
        return '';
      },
    );
    return [
      server.id,
      { server, fingerprint, comparison: createSchemaComparison(control, server, fingerprint) },
    ];
  };

  return new Map(await Promise.all(found.map(read)));
}

/** The part of a planned run for the tenants at one version. */
interface Plan {
  /**
   * Null for tenants whose run was killed: their version is read from the database when they
   * are migrated.
   */
  version: string | null;
  tenants: string[];
  /** `compatible`: the tenant is served during the migration, and by the build before it. */
  migrations: { name: string; sql: string[]; compatible: boolean }[];
  /** The action of the run, if it would run no migration. */
  note?: string;
  /** True if the version is that of no build, so that the run fails for these tenants. */
  isUnknown?: boolean;
}

/** The plan of a run. */
export interface PlannedRun {
  head: string;
  plans: Plan[];
  /** The tenants that are migrated first; if one of them fails, no other is. */
  canaries: string[];
  /**
   * The tenants that the comparison with the template would refuse, by the last report of
   * doctor.
   */
  refused: { slug: string; finding: string; problem: string }[];
}

/**
 * Plans a run by the recorded versions of the tenants. Opens no tenant database and changes
 * nothing.
 * @throws {LaterBuildError} as the run would, when a later build has migrated one of them
 */
export async function planRun(
  installation: Installation,
  { slugs, retryFailed, canary = 0 }: Pick<RunRequest, 'slugs' | 'retryFailed' | 'canary'> = {},
): Promise<PlannedRun> {
  const em = (await installation.control()).em.fork();
  const head = await tenantHead();
  await requireNoneLater(installation.statements, slugs);
  const steps = await readSchemaSteps();
  const where = {
    status: { $ne: 'provisioning' as const },
    ...(slugs ? { slug: { $in: slugs } } : {}),
  };
  const found = await em.find(Tenant, where, { orderBy: { slug: 'asc' } });
  const failed =
    retryFailed && (await readFailingTenants(installation)).failing.map(({ slug }) => slug);
  const tenants = failed ? found.filter(({ slug }) => failed.includes(slug)) : found;
  const stored = await em.find(
    SchemaFingerprint,
    { digest: await fingerprintKey() },
    { fields: ['serverId', 'fingerprint'] },
  );
  const expected = new Map(stored.map(({ serverId, fingerprint }) => [serverId, fingerprint]));
  const pending = tenants.filter(
    tenant =>
      tenant.schemaVersion !== head || tenant.schemaFingerprint !== expected.get(tenant.server.id),
  );
  const byVersion = Map.groupBy(pending, ({ schemaVersion }) => schemaVersion ?? null);
  const plans = [...byVersion].map(([version, group]): Plan => {
    const plan = { version, tenants: group.map(({ slug }) => slug), migrations: [] };
    if (version === head) {
      return { ...plan, note: 'is compared with the template; no migration runs' };
    }
    if (version === null) {
      return {
        ...plan,
        note:
          'an earlier run was killed: the version is read from the database, which is then ' +
          'migrated',
      };
    }

    const at = steps.findIndex(({ name }) => name === version);
    if (at < 0) {
      return { ...plan, note: 'fails: no build has this version', isUnknown: true };
    }

    const migrations = steps
      .slice(at + 1)
      .map(({ name, up, compatible }) => ({ name, sql: up, compatible }));
    return { ...plan, migrations };
  });

  return {
    head,
    plans: plans.sort((a, b) => (String(a.version) < String(b.version) ? -1 : 1)),
    canaries: canary > 0 ? pending.slice(0, canary).map(({ slug }) => slug) : [],
    refused: await readKnownDrift(
      installation,
      pending.map(({ slug }) => slug),
    ),
  };
}

/**
 * Returns which tenants have differences that nobody has undone since the last report of
 * doctor.
 */
async function readKnownDrift(
  { statements }: ControlStatements,
  slugs: readonly string[],
): Promise<PlannedRun['refused']> {
  const { rows } = await statements.query<PlannedRun['refused'][number]>(
    `select slug, finding ->> 'id' as finding, finding ->> 'problem' as problem
       from (select report from doctor_reports order by id desc limit 1) last,
            jsonb_array_elements(report -> 'findings') finding join tenants t on t.guid = ${guidOfFinding('finding')}
      where finding ->> 'check' = 'schema_drift' and not (finding ->> 'fixed')::boolean
        and slug in (select jsonb_array_elements_text($1::jsonb))
      order by 1, 2`,
    [JSON.stringify(slugs)],
  );

  return rows;
}
