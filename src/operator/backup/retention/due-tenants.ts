import type { ServerAccess } from '../../../control/installation.ts';
import type { Queryable } from '../../../lib/postgres/shared-connection.ts';
import { requireFound } from '../../registry/read-tenants.ts';
import { type HistoryKind, kindNames } from './history-kinds.ts';
import { cutoffOf } from './retention-age.ts';

/** Rows of one kind that are to be removed from a tenant. */
export interface DueRemoval {
  readonly kind: HistoryKind;
  readonly cutoff: Date;
}

/** A tenant that may have rows to be removed. */
export interface DueTenant {
  readonly tenantId: string;
  readonly guid: string;
  readonly slug: string;
  readonly database: string;
  /** The URL of the database, with the rights of the operator. */
  readonly url: string;
  readonly due: readonly DueRemoval[];
}

interface TenantRow extends Record<HistoryKind, string> {
  id: string;
  guid: string;
  slug: string;
  server: string;
  adminUrl: Buffer | null;
  database: string;
  activityDone: Date | null;
  auditDone: Date | null;
}

/**
 * SQL for the last cutoff before which the rows of a kind were removed from the present
 * database of a tenant.
 */
const lastDone = (kind: HistoryKind): string =>
  `(select max(removed_before) from history_removals r
     where r.tenant_id = t.id and kind = '${kind}' and r.state = 'done' and r.database_name = t.database_name)`;

/**
 * Returns the tenants whose retention asks for a removal. It opens no database of a tenant.
 * Without `slugs`, leaves out the tenants from which a run has removed the rows before the same
 * cutoff; a named tenant is always examined.
 * @param slugs only these tenants; undefined: all
 * @throws {OperatorError} when a tenant does not exist
 */
export async function findDueTenants(
  { servers }: ServerAccess,
  control: Queryable,
  slugs: readonly string[] | undefined,
  now: Date,
): Promise<DueTenant[]> {
  const { rows } = await control.query<{ [Field in keyof TenantRow]: TenantRow[Field] }>(
    `select t.id, guid, slug, s.name as server, admin_url as "adminUrl", database_name as database,
            coalesce(p.activity, d.activity, 'forever') as activity, coalesce(p.audit, d.audit, 'forever') as audit,
            ${lastDone('activity')} as "activityDone", ${lastDone('audit')} as "auditDone"
       from tenants t join servers s on s.id = server_id
       left join retention_policies p on p.tenant_id = t.id
       left join retention_policies d on d.tenant_id is null
      where status <> 'provisioning' and purging_at is null and ($1::text[] is null or slug = any ($1))
      order by slug`,
    [slugs],
  );
  requireFound(slugs ?? [], rows);

  return rows.flatMap(row => {
    const done = { activity: row.activityDone, audit: row.auditDone };
    const due = kindNames.flatMap(kind => {
      const cutoff = cutoffOf(row[kind], now);
      const last = done[kind];
      const isDone = slugs === undefined && cutoff !== undefined && last !== null && last >= cutoff;
      return cutoff === undefined || isDone ? [] : [{ kind, cutoff }];
    });
    if (due.length === 0) return [];

    const { id: tenantId, guid, slug, server, adminUrl, database } = row;
    return [
      {
        tenantId,
        guid,
        slug,
        database,
        url: servers.adminUrl({ name: server, adminUrl }, database),
        due,
      },
    ];
  });
}
