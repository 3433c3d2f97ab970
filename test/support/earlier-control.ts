import { withConnection } from '../../src/postgres/connection.ts';
import { loadMigrations, runMigrations } from '../../src/postgres/migration-steps.ts';

/* Control databases as the build before migration 0034 has left them. */

export const migrationName = '0034-tenant-databases';
export const day = (number: number): string => `2026-01-${String(number).padStart(2, '0')}T00:00:00Z`;

/** Tenants in all statuses; `isle` has moved from `alpha` to `beta`. They were created on the first day. */
const tenants = `
  insert into servers (name, prefix) values ('alpha', 'one'), ('beta', 'two');
  insert into tenants (slug, name, app_id, status, server_id, database_name, role_name, role_password,
                       schema_version, compatible_from, schema_fingerprint, created_at, purging_at)
  select slug, slug, slug, status, s.id, database, database || '_role', 'sealed',
         nullif(version, ''), nullif(version, ''), nullif(version, ''), '${day(1)}', purging::timestamptz
    from (values ('acme', 'active', 'alpha', 'one_tenant_1', '0026-a', null),
                 ('isle', 'active', 'beta', 'two_tenant_9', '0026-b', null),
                 ('quiet', 'suspended', 'alpha', 'one_tenant_3', '0025-c', null),
                 ('gone', 'deleted', 'alpha', 'one_tenant_4', '0026-d', null),
                 ('fresh', 'provisioning', 'alpha', 'one_tenant_5', '', null),
                 ('ending', 'deleted', 'alpha', 'one_tenant_6', '0026-e', '${day(9)}'))
         as t (slug, status, server, database, version, purging) join servers s on s.name = server`;

/** SQL of a move of a tenant. */
export const move = (slug: string, state: string, from: string, more = '', values = ''): string => `
  insert into tenant_moves (tenant_id, state, from_server_id, from_database, from_role, to_server_id, to_database, to_role,
                            to_password, epoch, keep_seconds, max_pause_ms${more})
  select t.id, '${state}', (select id from servers where name = 'alpha'), '${from}', '${from}_role', s.id,
         'two_tenant_9', 'two_tenant_9_role', 'sealed', 1, 60, 1000${values}
    from tenants t, servers s where slug = '${slug}' and s.name = 'beta'`;

/** Runs statements on one connection. @returns the rows of the last one */
export const query = <Row extends object>(url: string, ...texts: string[]): Promise<Row[]> =>
  withConnection(url, async client => {
    let rows: Row[] = [];
    for (const text of texts) ({ rows } = await client.query<Row>(text));
    return rows;
  });

/** Fills an empty database as the build before has left it: `content` is SQL. @returns its URL */
export async function createEarlier(url: string, ...content: string[]): Promise<string> {
  const all = await loadMigrations('control');
  const last = all.findIndex(each => each.name === migrationName);
  await runMigrations(url, all.slice(0, last));
  await query(url, tenants, ...content);
  return url;
}

/** Runs the migrations up to 0034. @returns the names of those that ran */
export async function runTenantDatabases(url: string): Promise<string[]> {
  const all = await loadMigrations('control');
  return runMigrations(url, all.slice(0, all.findIndex(each => each.name === migrationName) + 1));
}
