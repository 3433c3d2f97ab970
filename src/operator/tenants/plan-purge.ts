import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { readTenant } from './read-tenants.ts';
import { requirePurgeable } from './tenant-states.ts';
import { findTenant } from './tenants.ts';

/** What a purge removes. */
interface PurgePlan {
  slug: string;
  guid: string;
  database: string;
  server: string;
  users: number;
  /** Archives that nobody can read afterwards. */
  archives: number;
}

/**
 * Returns what a purge of a tenant removes, and changes nothing.
 * @throws {OperatorError} when `purgeTenant` would refuse it
 */
export async function planPurge(installation: Installation, slug: string): Promise<PurgePlan> {
  const tenant = await findTenant(installation, slug);
  await withConnection(installation.controlUrl, control => requirePurgeable(control, tenant));
  const { guid, id, database, server } = await readTenant(installation, slug);
  const [counts] = await installation.statements.execute<{ users: number; archives: number }[]>(
    `select (select count(*)::int from users where tenant_id = ?) as users,
            (select count(*)::int from archives where tenant_guid = ?) as archives`,
    [id, guid],
  );
  return { slug, guid, database, server, users: counts?.users ?? 0, archives: counts?.archives ?? 0 };
}
