import type { Installation } from '../../installation.ts';
import { requirePurgeable } from '../tenants/purging.ts';
import { readTenant } from '../tenants/read-tenants.ts';
import { findUnendedPurge } from './purge-tenant.ts';

/** What a purge removes. */
interface PurgePlan {
  slug: string;
  guid: string;
  /** Null for a purge that has removed everything but the key in the backup target. */
  database: string | null;
  server: string | null;
  users: number;
  /** Archives that nobody can read afterwards. */
  archives: number;
}

/**
 * Returns what a purge of a tenant removes, and changes nothing.
 * @throws {OperatorError} when `purgeTenant` would refuse it
 */
export async function planPurge(installation: Installation, slug: string): Promise<PurgePlan> {
  const unended = await findUnendedPurge(installation, slug);
  if (unended) {
    const { tenant, archives } = unended.record;
    return { slug, guid: tenant.guid, database: null, server: null, users: 0, archives: archives.length };
  }
  const tenant = await readTenant(installation, slug);
  requirePurgeable(tenant);
  const { guid, id, database, server } = tenant;
  const [counts] = await installation.statements.execute<{ users: number; archives: number }[]>(
    `select (select count(*)::int from users where tenant_id = ?) as users,
            (select count(*)::int from archives where tenant_guid = ?) as archives`,
    [id, guid],
  );
  return { slug, guid, database, server, users: counts?.users ?? 0, archives: counts?.archives ?? 0 };
}
