import { expect } from 'chai';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import type { DedicatedServer } from '../../support/dedicated-server.ts';

/** Returns the checks and tenants of what doctor finds. */
export async function findingsOf(
  { installation }: DedicatedServer,
  fix = false,
): Promise<(readonly [check: string, tenant: string | null])[]> {
  const { findings } = await diagnose(installation, { fix });

  return findings.map(({ check, tenant }) => [check, tenant] as const);
}

/**
 * Expects one database and one role for each tenant on the server, no others, and nothing for
 * doctor to find.
 */
export async function expectNoOrphan(server: DedicatedServer): Promise<void> {
  const known = await server.control<{ name: string }>(
    'select database_name as name from tenants order by 1',
  );
  const databases = await server.sql<{ name: string }>(
    `select datname as name from pg_database where datname ~ '^office_' and datname !~ '^office_template_' order by 1`,
  );
  const roles = await server.sql<{ name: string }>(
    `select rolname as name from pg_roles where rolname ~ '^office_' and rolname <> 'office_tenant' order by 1`,
  );

  expect(databases).to.deep.equal(known);
  expect(roles).to.deep.equal(known);
  expect(await findingsOf(server)).to.deep.equal([]);
}
