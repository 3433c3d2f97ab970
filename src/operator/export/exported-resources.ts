import type pg from 'pg';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { identityTables, listDataTables } from '../schema/tenant-tables.ts';

/** Rows that are exported as one resource. */
export interface ExportedResource {
  readonly name: string;
  /** SQL of its rows. */
  readonly query: string;
}

/** Tables that the service uses for itself, and no data of the tenant. */
const internalTables = [...identityTables, 'table_sizes', 'idempotency_keys', 'imports', 'import_chunks'];

/** Returns the tables of a tenant's database. */
export async function tableResources(client: pg.Client): Promise<ExportedResource[]> {
  const tables = await listDataTables(client, internalTables);
  return tables.map(({ name, columns }) => {
    const order = columns.includes('id') ? ' order by id' : '';
    return { name, query: `select ${columns.map(quoteIdentifier).join(', ')} from ${quoteIdentifier(name)}${order}` };
  });
}

/** Returns what the control database has of a tenant's people: no passwords, sessions or keys. */
export function peopleResources(tenantId: number): ExportedResource[] {
  const id = BigInt(tenantId);
  return [
    {
      name: 'users',
      query: `select u.id, u.guid, u.email, u.first_name, u.last_name, r.name as role, u.scope, u.entity_id, u.invited_at,
                     u.confirmed_at, u.disabled_at, u.created_at
                from users u join roles r on r.id = u.role_id where u.tenant_id = ${id} order by u.id`,
    },
    { name: 'roles', query: `select name, permissions from roles where tenant_id = ${id} order by name` },
    {
      name: 'people_audit_log',
      query: `select id, created_at, user_id, user_guid, entity_id, action, resource, record_key, before, after, ip_address
                from audit_log where tenant_id = ${id} order by id`,
    },
  ];
}
