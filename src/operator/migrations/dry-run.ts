import { Tenant } from '../../control/fleet-entities.ts';
import { SchemaFingerprint } from '../../control/migration-run.ts';
import type { Installation } from '../../installation.ts';
import { readSchemaSteps } from '../schema/schema-steps.ts';
import { fingerprintKey } from '../schema/template-fingerprint.ts';
import { tenantHead } from '../schema/tenant-head.ts';

/** What a run would do to the tenants that are at one version. */
export interface Plan {
  /** Null: not known, because a run was ended while it was at them; what they lack is looked up when they are migrated. */
  version: string | null;
  tenants: string[];
  migrations: { name: string; sql: string[] }[];
  /** In words, when it is not that migrations are missing. */
  note?: string;
}

/** What a run would do, by the versions of the fleet; opens no tenant connection and changes nothing. */
export async function planRun({ control }: Installation, slugs?: string[]): Promise<{ head: string; plans: Plan[] }> {
  const em = control.em.fork();
  const head = await tenantHead();
  const steps = await readSchemaSteps();
  const where = { status: { $ne: 'provisioning' as const }, ...(slugs ? { slug: { $in: slugs } } : {}) };
  const tenants = await em.find(Tenant, where, { orderBy: { slug: 'asc' } });
  const kept = await em.find(
    SchemaFingerprint,
    { digest: await fingerprintKey() },
    { fields: ['serverId', 'fingerprint'] },
  );
  const expected = new Map(kept.map(({ serverId, fingerprint }) => [serverId, fingerprint]));
  const todo = tenants.filter(
    tenant => tenant.schemaVersion !== head || tenant.schemaFingerprint !== expected.get(tenant.server.id),
  );
  const byVersion = Map.groupBy(todo, ({ schemaVersion }) => schemaVersion ?? null);
  const plans = [...byVersion].map(([version, group]): Plan => {
    const slugsOf = group.map(({ slug }) => slug);
    if (version === head) {
      return { version, tenants: slugsOf, migrations: [], note: 'compared with the template, not migrated' };
    }
    if (version === null) {
      return { version, tenants: slugsOf, migrations: [], note: 'an earlier run did not end: looked at, and migrated' };
    }
    const at = steps.findIndex(({ name }) => name === version);
    if (at < 0) return { version, tenants: slugsOf, migrations: [], note: 'refused: this build does not know it' };
    return { version, tenants: slugsOf, migrations: steps.slice(at + 1).map(({ name, up }) => ({ name, sql: up })) };
  });
  return { head, plans: plans.sort((a, b) => (String(a.version) < String(b.version) ? -1 : 1)) };
}
