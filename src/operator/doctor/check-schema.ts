import type pg from 'pg';
import type { SchemaComparison } from '../schema/schema-comparison.ts';
import type { CheckedTenant } from './control-facts.ts';
import type { Report } from './finding.ts';

/** The schema of a tenant database at head on one server. */
export interface Head {
  /** Name of the last migration. */
  version: string;
  fingerprint: string;
  comparison: SchemaComparison;
}

type ReportFinding = (report: Report) => void;

/**
 * Compares the version of a tenant database with the control database and with this build.
 * @param version last migration that the database has; null without any
 */
export function checkVersion(
  { slug, schemaVersion }: CheckedTenant,
  version: string | null,
  head: Head,
  report: ReportFinding,
): void {
  const recorded = schemaVersion ?? null;
  const migrate = `Migrate it: npx backoffice migrate ${slug}`;
  if (recorded !== version)
    report({
      check: 'version_differs',
      problem:
        `the control database records ${recorded ?? 'no version'}, ` + `the database is at ${version ?? 'no version'}`,
      remedy: migrate,
    });
  else if (version !== null && version < head.version)
    report({
      check: 'behind',
      problem: `the database is at ${version}, this build needs ${head.version}`,
      remedy: migrate,
    });
  else if (version !== head.version)
    report({
      check: 'behind',
      problem: `the database is at ${version ?? 'no version'}, which this build does not know`,
      remedy: 'Run doctor of a newer build.',
    });
}

/** Checks the version in `tenant_identity`, which the service reads before it serves a request from the database. */
export async function checkIdentityVersion(client: pg.Client, head: Head, report: ReportFinding): Promise<void> {
  const { rows } = await client.query<{ version: string | null }>(
    'select schema_version as version from tenant_identity',
  );
  const version = rows[0]?.version ?? null;
  if (version === head.version) return;
  report({
    check: 'version_differs',
    problem: `the identity in the database has ${version ?? 'no version'}, its migrations are at ${head.version}`,
    remedy: 'Set the version of the identity again',
    statements: ['update tenant_identity set guid = guid'], // a trigger sets the version
  });
}

/** Compares the schema of a database at head with the template of the server. */
export async function checkSchema(client: pg.Client, head: Head, report: ReportFinding): Promise<void> {
  const difference = await head.comparison.difference(client);
  if (difference === undefined) return;
  report({
    check: 'schema_drift',
    problem: `the schema differs from the template: ${difference}`,
    remedy: 'Change the object back to what the migrations define.',
  });
}
