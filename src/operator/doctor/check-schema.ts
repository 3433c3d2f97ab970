import type pg from 'pg';
import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { type Difference, differenceText } from '../../lib/postgres/schema-fingerprint.ts';
import { independentDifferences } from '../schema/repair-drift.ts';
import type { EarlierComparison, SchemaComparison } from '../schema/schema-comparison.ts';
import { appendOnlyTables } from '../schema/tenant-tables.ts';
import type { CheckedTenant } from './control-facts.ts';
import type { Report } from './finding.ts';

/** The schema of a tenant database at head on one server. */
export interface Head {
  /** Name of the last migration. */
  version: string;
  fingerprint: string;
  comparison: SchemaComparison;
  /** The comparison of a database that is behind. */
  earlier: EarlierComparison;
}

/**
 * Maximum differences of one database that are reported one by one; further ones are counted.
 */
const maxDifferences = 20;

type ReportFinding = (report: Report) => void;

/**
 * Compares the version of a tenant database with the control database and with this build.
 * @param version last migration that the database has; null without any
 * @param differences how many differences of its schema are known
 */
export function checkVersion(
  { slug, schemaVersion }: CheckedTenant,
  version: string | null,
  head: Head,
  differences: number,
  report: ReportFinding,
): void {
  const recorded = schemaVersion ?? null;
  const first =
    differences > 0
      ? 'Repair its schema_drift first: the migration would refuse it. Then migrate'
      : 'Migrate';
  const migrate = `${first} it: bin/backoffice migrate ${slug}`;

  if (recorded !== version) {
    report({
      check: 'version_differs',
      problem:
        `the control database records ${recorded ?? 'no version'}, ` +
        `the database is at ${version ?? 'no version'}`,
      remedy: migrate,
    });
  } else if (version !== null && version < head.version) {
    report({
      check: 'behind',
      problem: `the database is at ${version}, this build needs ${head.version}`,
      remedy: migrate,
    });
  } else if (version !== head.version) {
    report({
      check: version === null ? 'behind' : 'newer_schema',
      problem: `the database is at ${version ?? 'no version'}, which this build does not know`,
      remedy: version === null ? migrate : 'Run doctor of a newer build.',
    });
  }
}

/**
 * Checks the version in `tenant_identity`, which the service reads before it serves a request
 * from the database.
 */
export async function checkIdentityVersion(
  client: pg.Client,
  head: Head,
  report: ReportFinding,
): Promise<void> {
  const { rows } = await client.query<{ version: string | null }>(
    'select schema_version as version from tenant_identity',
  );
  const version = rows[0]?.version ?? null;
  if (version === head.version) return;

  report({
    check: 'version_differs',
    problem:
      `the identity in the database has ${version ?? 'no version'}, its migrations are at ` +
      `${head.version}`,
    remedy: 'Set the version of the identity again',
    statements: ['update tenant_identity set guid = guid'], // a trigger sets the version
  });
}

/**
 * Compares the schema of a database with the template of the server, or while it is behind,
 * with that of its version. Reports each difference that can be undone on its own.
 * @param version that the database is at
 * @param group the group role of all tenants
 * @returns how many differences there are
 */
export async function checkSchema(
  client: pg.Client,
  head: Head,
  { slug, group, version }: { slug: string; group: string; version: string },
  report: ReportFinding,
): Promise<number> {
  const differences =
    version === head.version
      ? await head.comparison(client)
      : ((await head.earlier(client, version)) ?? []);
  const independent = independentDifferences(differences, group);
  for (const { difference, sql } of independent.slice(0, maxDifferences)) {
    reportDifference(difference, sql, slug, report);
  }
  const left = independent.length - maxDifferences;
  if (left > 0) {
    report({
      check: 'schema_drift',
      problem: `the schema differs from the template in ${left} further objects`,
      remedy: restoreRemedy(slug),
    });
  }

  return independent.length;
}

function reportDifference(
  difference: Difference,
  statements: string[] | undefined,
  slug: string,
  report: ReportFinding,
): void {
  const problem = `the schema differs from the template: ${differenceText(difference)}`;
  const remedy =
    statements === undefined
      ? restoreRemedy(slug)
      : 'If nobody needs the change, undo it; data that the template has no place for are kept ' +
        'in the schema kept';
  report({ check: 'schema_drift', problem, remedy, statements, kind: 'named' });
}

function restoreRemedy(slug: string): string {
  return (
    `Make a database with the right schema: bin/backoffice restore ${slug} --archive latest. ` +
    `Then compare it, and swap it: bin/backoffice restore swap ${slug}`
  );
}

/**
 * Grants to the role, or to a role whose privileges it has, or to PUBLIC. Grants on single
 * columns count too.
 */
const excessGrants = `
  with granted as (
    select relname, relowner, (aclexplode(relacl)).* from pg_class
     where relnamespace = 'public'::regnamespace and relname = any ($2)
    union all
    select relname, relowner, (aclexplode(attacl)).* from pg_attribute join pg_class c on c.oid = attrelid
     where relnamespace = 'public'::regnamespace and relname = any ($2) and attacl is not null
  )
  select case grantee when 0 then 'public' else pg_get_userbyid(grantee) end as grantee, relname as "table",
         string_agg(distinct privilege_type, ', ' order by privilege_type) as privileges
    from granted
   where privilege_type in ('UPDATE', 'DELETE', 'TRUNCATE')
     and grantee <> relowner and (grantee = 0 or pg_has_role($1, grantee, 'usage'))
   group by 1, 2 order by 1, 2`;

/**
 * Checks that a login role of a tenant cannot change the append-only tables.
 * @param client on the tenant's database
 */
export async function checkAppendOnlyTables(
  client: pg.Client,
  role: string,
  report: (report: Report) => void,
): Promise<void> {
  const { rows } = await client.query<{ grantee: string; table: string; privileges: string }>(
    excessGrants,
    [role, appendOnlyTables],
  );
  for (const { grantee, table, privileges } of rows) {
    const to = grantee === 'public' ? 'PUBLIC' : `role ${grantee}`;
    report({
      check: 'excess_rights',
      problem: `${to} has ${privileges} on ${table}, which is append-only`,
      remedy: `Revoke ${privileges} on ${table} from ${to === 'PUBLIC' ? to : grantee}`,
      statements: [
        `revoke ${privileges} on ${table} from ${grantee === 'public' ? grantee : quote(grantee)}`,
      ],
    });
  }
}
