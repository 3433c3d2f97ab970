/** The number of tenants that `fleetSql` records. */
export const recordedTenants = 10_000;

/** Statements that record a fleet in a control database. Its databases do not exist. */
export const fleetSql = [
  `insert into tenants (slug, name, app_id, status, server_id, database_name, role_name, role_password, schema_version)
   select 't' || n, 'Tenant ' || n, 'app', case when n % 50 = 0 then 'suspended' else 'active' end, s.id, 'none_' || n,
          'none_' || n, '', (select schema_version from tenants where slug = 'acme')
     from generate_series(1, ${recordedTenants}) n, (select id from servers limit 1) s`,
  `insert into tenant_databases (tenant_id, server_id, database_name, role_name, state, origin)
   select id, server_id, database_name, role_name, 'current', 'the template' from tenants where slug like 't%'`,
  `insert into roles (tenant_id, name) select id, 'Drill' from tenants`,
  `insert into users (tenant_id, email, password_hash, first_name, last_name, role_id)
   select tenant_id, 'user' || n || '@drill.test', '', 'A', 'B', id from roles, generate_series(1, 5) n
    where name = 'Drill'`,
  `update installation set backup_target = 'folder /backup'`,
  `insert into archives (target, name, tenant_guid, archived_at, state, recipients, bytes, sha256, unpacked_bytes,
                         covered_at, proved_at)
   select 'folder /backup', slug || '-' || n, guid, now() - n * interval '1 day', 'complete', '0a1b2c3d', 100000, '', 900000,
          now() - interval '4 h', case when n = 3 then now() end
     from tenants, generate_series(1, 30) n`,
  `insert into tenant_usage (tenant_id, hour, requests, writes, database_ms, database_bytes)
   select id, date_trunc('hour', now()) - n * interval '1 day', n * 100, n, n, 1000000 * n
     from tenants, generate_series(0, 13) n`,
  `insert into operator_actions (operator, build, command, slug, state)
   select 'jane@office', '0', 'move', slug, 'done' from tenants, generate_series(1, 5)`,
  ...Array.from({ length: 30 }, () => runSql('succeeded', `'migrated'`, 'null')),
  'analyze',
];

/** Statements that record a failed migration, a finding and a faulty archive of each tenant. */
export const failuresSql = [
  runSql(
    'failed',
    `'failed'`,
    `'Relation "labels" of ' || slug || ' exists already' || repeat(' and more', 100)`,
  ),
  `update tenants set schema_version = '0001-first'`,
  `insert into doctor_reports (made_by, report) select 'drill', jsonb_build_object(
     'healthy', false, 'servers', 1, 'tenants', ${recordedTenants}, 'findings', (
       select jsonb_agg(jsonb_build_object('id', left(md5(slug), 8), 'check', 'schema_drift', 'server', 'default',
         'tenant', slug, 'tenantGuid', guid, 'severity', 'error', 'repair', null, 'fixed', false,
         'problem', 'the schema differs from the template: column entities.name of ' || slug || ' is missing',
         'remedy', 'Change the object back to what the migrations define.')) from tenants))`,
  `update archives set fault = 'It ends too early' where name like '%-1'`,
  'analyze',
];

function runSql(state: string, outcome: string, error: string): string {
  return `with run as (
    insert into migration_runs (head, canary, requested_by, state, finished_at)
    values ('0040', 2, 'jane@office', '${state}', now()) returning id)
    insert into migration_outcomes (run_id, tenant_id, state, from_version, to_version, ms, error, started_at, finished_at)
    select run.id, t.id, ${outcome}, '0039', '0040', 20, ${error}, now(), now() from run, tenants t`;
}
