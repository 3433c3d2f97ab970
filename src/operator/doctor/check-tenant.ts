import type pg from 'pg';
import type { Tenant } from '../../control/fleet-entities.ts';
import { owners } from '../../control/secret-box.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import type { Installation } from '../../installation.ts';
import { catalogQuerySettings, withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { fingerprint, firstDifference, schemaObjects } from '../../postgres/schema-fingerprint.ts';
import { shortText } from '../migrations/migrate-tenant.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import { headObjects } from '../schema/template-fingerprint.ts';
import type { Check, Finding } from './finding.ts';

/** What a database at head has on the server: its last migration and its fingerprint. */
export interface Head {
  version: string;
  fingerprint: string;
}

/** Nothing may change what was written there. */
const appendOnlyTables = ['audit_log', 'activities'];

/**
 * Looks into one tenant's database. It goes in the way the service does, with the tenant's own login, so that what keeps
 * the service out is seen; only when that fails, with the operator's.
 */
export async function checkTenant(installation: Installation, tenant: Tenant, head: Head): Promise<Finding[]> {
  const { servers, secrets } = installation;
  const findings: Finding[] = [];
  const add = (check: Check, problem: string, remedy: string, statements?: string[]) =>
    findings.push({
      check,
      server: tenant.server.name,
      tenant: tenant.slug,
      problem,
      remedy: statements ? `${remedy}: doctor --fix does it` : remedy,
      ...(statements ? { repair: { database: tenant.databaseName, statements } } : {}),
    });
  const adminUrl = servers.adminUrl(tenant.server);
  const examine = (client: pg.Client) => checkInside(installation, client, tenant, head, add);
  let login: { user: string; password: string };
  try {
    const password = secrets.open(tenant.rolePassword, owners.rolePassword(tenant.guid)).toString();
    login = { user: tenant.roleName, password };
  } catch {
    // Said already; what is inside is still worth a look.
    await connected(databaseUrl(adminUrl, tenant.databaseName), examine);
    return findings;
  }
  await connected(databaseUrl(adminUrl, tenant.databaseName, login), examine).catch(async error => {
    if (!/^(28|42501)/.test(sqlState(error) ?? '')) throw error;
    findings.length = 0;
    add(
      'login_fails',
      `the service is kept out of ${tenant.databaseName}: ${shortText(error)}`,
      `see the other findings; when there are none, the password is wrong: alter role ${quote(tenant.roleName)} password …`,
    );
    await connected(databaseUrl(adminUrl, tenant.databaseName), examine);
  });
  return findings;
}

async function checkInside(
  { control }: Installation,
  client: pg.Client,
  { slug, guid, roleName, schemaVersion, server }: Tenant,
  head: Head,
  add: (check: Check, problem: string, remedy: string, statements?: string[]) => void,
): Promise<void> {
  const { guid: found, applied } = await readSchemaState(client);
  const version = applied.at(-1) ?? null;
  if (found !== guid) {
    const problem = found
      ? `the database belongs to the tenant with the guid ${found}`
      : 'the database has no identity';
    add('wrong_identity', problem, `the service refuses it; put the right database_name into the row of ${slug}`);
    return;
  }
  const known = schemaVersion ?? null;
  if (known !== version)
    add(
      'version_differs',
      `the books have ${known ?? 'no version'} for it, the database has ${version ?? 'none'}`,
      `migrate ${slug}`,
    );
  else if (version !== null && version < head.version)
    add('behind', `it is at ${version}, this build needs ${head.version}`, `migrate ${slug}`);
  else if (version !== head.version)
    add('behind', `it is at ${version ?? 'no version'}, which this build does not know`, 'run a newer build');
  for (const { grantee, table, rights } of await tooMuch(client, roleName)) {
    const statements = [`revoke ${rights} on ${table} from ${grantee === 'public' ? grantee : quote(grantee)}`];
    add('excess_rights', `${grantee} has ${rights} on ${table}`, 'take that from it', statements);
  }
  if (version !== head.version) return;
  const { rows: stamps } = await client.query<{ version: string | null }>(
    'select schema_version as version from tenant_identity',
  );
  const stamp = stamps[0]?.version ?? null;
  if (stamp !== version)
    add('version_differs', `its identity says ${stamp ?? 'no version'}, its migrations ${version}`, 'stamp it anew', [
      'update tenant_identity set guid = guid', // a trigger does the rest
    ]);
  if ((await fingerprint(client)) === head.fingerprint) return;
  const difference = firstDifference(await schemaObjects(client), await headObjects(control, server));
  add(
    'schema_drift',
    `its schema differs from the template: ${difference}`,
    'bring that back to what the migrations made of it',
  );
}

/** Who of those that a tenant's login can act as may change what is append-only, by table. */
async function tooMuch(client: pg.Client, role: string): Promise<{ grantee: string; table: string; rights: string }[]> {
  const { rows } = await client.query<{ grantee: string; table: string; rights: string }>(
    `with granted as (
       select relname, relowner, (aclexplode(relacl)).* from pg_class
        where relnamespace = 'public'::regnamespace and relname = any ($2)
       union all
       select relname, relowner, (aclexplode(attacl)).* from pg_attribute join pg_class c on c.oid = attrelid
        where relnamespace = 'public'::regnamespace and relname = any ($2) and attacl is not null
     )
     select case grantee when 0 then 'public' else pg_get_userbyid(grantee) end as grantee, relname as "table",
            string_agg(distinct privilege_type, ', ' order by privilege_type) as rights
       from granted
      where privilege_type in ('UPDATE', 'DELETE', 'TRUNCATE')
        and grantee <> relowner and (grantee = 0 or pg_has_role($1, grantee, 'usage'))
      group by 1, 2 order by 1, 2`,
    [role, appendOnlyTables],
  );
  return rows;
}

function connected(url: string, work: (client: pg.Client) => Promise<void>): Promise<void> {
  return withConnection(url, work, { kind: 'doctor', settings: catalogQuerySettings });
}
