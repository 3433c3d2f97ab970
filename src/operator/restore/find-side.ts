import type { Tenant } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { findTenant } from '../tenants/tenants.ts';
import { restoreCommand } from './restore-command.ts';
import type { RestoreView } from './restore-protocol.ts';

/** A tenant and the restored tenant beside it. */
export interface RestoredPair {
  tenant: Tenant;
  side: Tenant;
  restoredFrom: string;
  /** True if the tenant has the restored database now, and the side its former one. */
  isSwapped: boolean;
  /** The fence of the tenant. */
  fence: RestoreView['fence'];
}

interface SideRow extends Omit<RestoredPair, 'tenant' | 'side'> {
  side: string;
  source: string;
}

/**
 * Returns a tenant with its restored side. A side that is deleted counts only while a swap with it has not ended.
 * @param slug of either of the two; a tenant with several sides has to be named by the side
 * @throws {OperatorError} when nothing was restored beside it
 */
export async function findRestoredPair(installation: Installation, slug: string): Promise<RestoredPair> {
  const { id } = await findTenant(installation, slug);
  const rows = await installation.statements.execute<SideRow[]>(
    `select t.slug as side, s.slug as source, restored_from as "restoredFrom", swapped_at is not null as "isSwapped",
            case when f.closed then 'closed' when f.id is not null then 'announced' else 'none' end as fence
       from restored_tenants r join tenants t on t.id = r.tenant_id join tenants s on s.id = r.source_id
       left join tenant_fences f on f.tenant_guid = s.guid
      where complete_at is not null and (t.status <> 'deleted' or f.id is not null) and ? in (r.tenant_id, r.source_id)
      order by complete_at`,
    [id],
  );
  const [row, ...others] = rows;
  if (!row)
    throw new OperatorError(
      `Nothing is restored beside ${slug}. Restore an archive: ${restoreCommand(slug, '--to <new-slug>')}`,
    );
  if (others.length > 0)
    throw new OperatorError(
      `${slug} has several restored tenants: name one of them instead: ${rows.map(({ side }) => side).join(', ')}`,
      { usage: true },
    );
  const { side, source, ...facts } = row;
  const [tenant, restored] = [await findTenant(installation, source), await findTenant(installation, side)];
  return { tenant, side: restored, ...facts };
}
