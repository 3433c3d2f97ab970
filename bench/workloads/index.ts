import type { Work } from '../workload.ts';
import { budgetWorks } from './budget-pressure.ts';
import { coldTenant } from './cold-tenant.ts';
import { mixedReads, tenantReads } from './many-tenants.ts';
import { floodWorks, readsBesideLogins } from './noisy-neighbour.ts';
import { openTenants } from './open-tenants.ts';
import { singleTenantWorks } from './single-tenant.ts';

/** The catalogue: everything the bench measures, in the order in which it is told. */
export const works: Work[] = [
  ...singleTenantWorks,
  tenantReads,
  mixedReads,
  coldTenant,
  ...budgetWorks,
  ...floodWorks,
  openTenants,
  readsBesideLogins,
];
