import pLimit from 'p-limit';
import { databaseUrl } from '../src/control/server-urls.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { fingerprint } from '../src/postgres/schema-fingerprint.ts';
import type { BenchInstallation } from './bench-installation.ts';
import type { Fleet } from './fleet-tenants.ts';

const concurrency = 4;

/** Runs SQL in the control database. */
export async function queryControl<Row extends object>(
  { controlUrl }: BenchInstallation,
  text: string,
): Promise<Row[]> {
  return withConnection(controlUrl, async client => (await client.query(text)).rows as Row[]);
}

/**
 * Returns everything that a migration run leaves, as text to compare: versions, fingerprints and outcomes in the
 * control database, and the schema and the rows of every tenant database.
 * @throws {Error} if a tenant database has not run the migration exactly once
 */
export async function fleetState(opened: BenchInstallation, { tenants, next }: Fleet): Promise<string> {
  const recorded = await queryControl(
    opened,
    `select slug, status, schema_version, schema_fingerprint,
            (select state in ('migrated', 'current') from migration_outcomes where tenant_id = id
               order by run_id desc limit 1) as done
       from tenants where slug like 'tenant-%' order by slug`,
  );
  const databases = await pLimit(concurrency).map(tenants, async ({ slug, url }) => {
    const state = await withConnection(url, async client => {
      const { rows } = await client.query(
        `select (select guid from tenant_identity) as guid, (select count(*)::int from entity_statuses) as statuses,
                (select string_agg(title, ' ') from labels) as labels,
                (select count(*)::int from migrations where name = $1) as applied`,
        [next.head],
      );
      return { ...rows[0], fingerprint: await fingerprint(client) };
    });
    if (state.applied !== 1 || state.labels !== 'once')
      throw new Error(`${slug}: the migration did not run exactly once`);
    return JSON.stringify([slug, state]);
  });
  return JSON.stringify([recorded, databases.sort()]);
}

/** Returns everything that provisioning leaves, as text to compare, without the values that differ for every tenant. */
export async function provisionedState(opened: BenchInstallation, slug: string): Promise<string> {
  const [tenant] = await queryControl<{ database: string; guid: string }>(
    opened,
    `select guid, status, schema_version, schema_fingerprint, database_name as database,
            (select count(*)::int from signing_keys k where k.tenant_id = t.id) as keys,
            (select count(*)::int from roles r where r.tenant_id = t.id) as roles,
            (select count(*)::int from users u where u.tenant_id = t.id) as users
       from tenants t where slug = '${slug}'`,
  );
  if (!tenant) return 'nothing';
  const { database, guid, ...counts } = tenant;
  return withConnection(databaseUrl(opened.serverUrl, database), async client => {
    const { rows } = await client.query(
      `select (select guid = $1 from tenant_identity) as own,
              (select json_agg(title order by id) from entity_statuses) as statuses,
              (select json_agg(name order by id) from migrations) as migrations`,
      [guid],
    );
    return JSON.stringify([counts, rows, await fingerprint(client)]);
  });
}
