import { findingId } from '../../../src/operator/doctor/finding.ts';
import { controlSql, type World } from '../../support/world.ts';

/** A finding as a test gives it. */
interface GivenFinding {
  readonly check: string;
  readonly tenant: string | null;
  readonly problem: string;
  readonly remedy: string;
  readonly severity?: 'error' | 'warning';
}

/** Stores a report of doctor that has just been made. */
export async function storeFindings(world: World, given: readonly GivenFinding[]): Promise<void> {
  const findings = given.map(each => ({
    server: 'default',
    severity: 'error',
    repair: null,
    fixed: false,
    ...each,
    id: findingId({ ...each, server: 'default' } as Parameters<typeof findingId>[0]),
  }));
  const report = { healthy: findings.length === 0, servers: 1, tenants: 2, measured: [], findings };

  await controlSql(
    world,
    `with former as (delete from doctor_reports)
     insert into doctor_reports (made_by, report) values ('jane@office', ?::jsonb)`,
    [JSON.stringify(report)],
  );
}
