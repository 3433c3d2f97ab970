import { setTimeout as sleep } from 'node:timers/promises';
import { Tenant } from '../control/entities.ts';
import { databaseUrl } from '../control/servers.ts';
import { loadMigrations, migrationNames, runMigrations } from '../migrations.ts';
import { holdLock, lockSpaces, withConnection } from './admin-connection.ts';
import type { Installation } from './installation.ts';
import { OperatorError } from './operator-error.ts';
import { migrationSettings } from './template.ts';

/** What became of one tenant in a run. */
export interface MigrationOutcome {
  slug: string;
  state: 'migrated' | 'failed';
  from: string | null;
  to: string | null;
  ms: number;
  error?: string;
}

interface MigrationRun {
  /** Only these tenants; all without it. */
  slugs?: string[];
  /** Tenants migrated at the same time. */
  concurrency?: number;
  onOutcome?: (outcome: MigrationOutcome) => void;
}

/** The last migration of tenant databases that this build knows. */
export async function tenantHead(): Promise<string> {
  return (await migrationNames('tenant')).at(-1) ?? '';
}

/**
 * Brings tenant databases to head. A tenant that is there already costs no connection; one that fails does not stop the
 * others. Two runs at once do not collide: each tenant is locked in the control database while it is worked on.
 */
export async function migrateTenants(
  installation: Installation,
  { slugs, concurrency = 4, onOutcome }: MigrationRun = {},
): Promise<MigrationOutcome[]> {
  const head = await tenantHead();
  const tenants = await installation.control.em
    .fork()
    .find(
      Tenant,
      { status: { $ne: 'provisioning' }, ...(slugs ? { slug: { $in: slugs } } : {}) },
      { orderBy: { slug: 'asc' } },
    );
  const unknown = slugs?.filter(slug => !tenants.some(tenant => tenant.slug === slug)) ?? [];
  if (unknown.length > 0) throw new OperatorError(`there is no tenant ${unknown.join(', ')}`);

  const todo = tenants.filter(tenant => tenant.schemaVersion !== head);
  const outcomes: MigrationOutcome[] = [];
  const migrations = await loadMigrations('tenant');
  const worker = async (): Promise<void> => {
    for (let tenant = todo.shift(); tenant; tenant = todo.shift()) {
      const startedAt = performance.now();
      const from = tenant.schemaVersion ?? null;
      const result = await migrateTenant(installation, tenant.id, migrations).then(
        to => ({ state: 'migrated' as const, to }),
        (error: Error) => ({ state: 'failed' as const, to: from, error: error.message }),
      );
      const outcome = { slug: tenant.slug, from, ...result, ms: Math.round(performance.now() - startedAt) };
      outcomes.push(outcome);
      onOutcome?.(outcome);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  return outcomes;
}

/** @returns the version that the tenant's database has now */
async function migrateTenant(
  { control, controlUrl, servers }: Installation,
  id: number,
  migrations: Awaited<ReturnType<typeof loadMigrations>>,
): Promise<string | null> {
  return withConnection(controlUrl, async client => {
    await holdLock(client, lockSpaces.tenant, id);
    const em = control.em.fork();
    const tenant = await em.findOneOrFail(Tenant, { id }, { populate: ['server'] });
    const adminUrl = servers.adminUrl(tenant.server);
    // MikroORM's migrator would make a database that is missing.
    const exists = await withConnection(adminUrl, async admin => {
      const { rowCount } = await admin.query('select from pg_database where datname = $1', [tenant.databaseName]);
      return rowCount === 1;
    });
    if (!exists) throw new OperatorError('its database does not exist');
    await retryLocked(() =>
      runMigrations(databaseUrl(adminUrl, tenant.databaseName), migrations, migrationSettings(tenant.server)),
    );
    tenant.schemaVersion = migrations.at(-1)?.name ?? null;
    await em.flush();
    return tenant.schemaVersion;
  });
}

const lockAttempts = 3;

/** A table that a long request holds is tried again; queueing for it would hold up everybody behind. */
async function retryLocked<T>(run: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await run();
    } catch (error) {
      if (attempt === lockAttempts || (error as { code?: string }).code !== '55P03') throw error;
      await sleep(200 * attempt);
    }
  }
}
