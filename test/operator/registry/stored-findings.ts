import { findingId } from '../../../src/operator/doctor/finding.ts';
import { type DoctorReport, storeReport } from '../../../src/operator/doctor/reports.ts';
import type { World } from '../../support/world.ts';

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
  const report = {
    build: 'of a test',
    healthy: findings.length === 0,
    servers: 1,
    tenants: 2,
    measured: [],
    findings,
  } as DoctorReport;

  await storeReport(world.installation.statements, report, 'jane@office');
}
