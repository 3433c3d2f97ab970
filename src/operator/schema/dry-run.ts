import { Tenant } from '../../control/control-entities.ts';
import { SchemaFingerprint } from '../../control/migration-run.ts';
import type { Installation } from '../../installation.ts';
import { readFailing } from './fleet-status.ts';
import type { RunRequest } from './migration-runs.ts';
import { readSchemaSteps } from './schema-steps.ts';
import { fingerprintKey } from './template.ts';
import { tenantHead } from './tenant-head.ts';

/** The part of a planned run for the tenants at one version. */
export interface Plan {
  /** Null for tenants whose run was killed: their version is read from the database when they are migrated. */
  version: string | null;
  tenants: string[];
  /** `compatible`: the tenant is served during the migration, and by the build before it. */
  migrations: { name: string; sql: string[]; compatible: boolean }[];
  /** The action of the run, if it would run no migration. */
  note?: string;
}

/** Plans a run by the recorded versions of the tenants. Opens no tenant database and changes nothing. */
export async function planRun(
  installation: Installation,
  { slugs, retryFailed }: Pick<RunRequest, 'slugs' | 'retryFailed'> = {},
): Promise<{ head: string; plans: Plan[] }> {
  const { control } = installation;
  const em = control.em.fork();
  const head = await tenantHead();
  const steps = await readSchemaSteps();
  const where = { status: { $ne: 'provisioning' as const }, ...(slugs ? { slug: { $in: slugs } } : {}) };
  const found = await em.find(Tenant, where, { orderBy: { slug: 'asc' } });
  const failed = retryFailed && (await readFailing(installation)).failing.map(({ slug }) => slug);
  const tenants = failed ? found.filter(({ slug }) => failed.includes(slug)) : found;
  const stored = await em.find(
    SchemaFingerprint,
    { digest: await fingerprintKey() },
    { fields: ['serverId', 'fingerprint'] },
  );
  const expected = new Map(stored.map(({ serverId, fingerprint }) => [serverId, fingerprint]));
  const pending = tenants.filter(
    tenant => tenant.schemaVersion !== head || tenant.schemaFingerprint !== expected.get(tenant.server.id),
  );
  const byVersion = Map.groupBy(pending, ({ schemaVersion }) => schemaVersion ?? null);
  const plans = [...byVersion].map(([version, group]): Plan => {
    const plan = { version, tenants: group.map(({ slug }) => slug), migrations: [] };
    if (version === head) return { ...plan, note: 'is compared with the template; no migration runs' };
    if (version === null)
      return {
        ...plan,
        note: 'an earlier run was killed: the version is read from the database, which is then migrated',
      };
    const at = steps.findIndex(({ name }) => name === version);
    if (at < 0) return { ...plan, note: 'fails: this build does not know this version' };
    const migrations = steps.slice(at + 1).map(({ name, up, compatible }) => ({ name, sql: up, compatible }));
    return { ...plan, migrations };
  });
  return { head, plans: plans.sort((a, b) => (String(a.version) < String(b.version) ? -1 : 1)) };
}
