import type { Workload } from '../workload.ts';
import { budgetWorkloads } from './budget-pressure.ts';
import { coldTenant } from './cold-tenant.ts';
import { keyReads } from './key-reads.ts';
import { tenantReads } from './many-tenants.ts';
import { floodWorkloads, readsDuringLogins } from './noisy-neighbour.ts';
import { openTenants } from './open-tenants.ts';
import { singleTenantWorkloads } from './single-tenant.ts';
import { tracedReads } from './tracing.ts';

/** The catalogue of all workloads, in the order of the report. */
export const workloads: Workload[] = [
  ...singleTenantWorkloads,
  tenantReads,
  coldTenant,
  ...budgetWorkloads,
  ...floodWorkloads,
  openTenants,
  readsDuringLogins,
  tracedReads,
  keyReads,
];
