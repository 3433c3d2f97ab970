import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Config } from './config/config.ts';
import { TenantDatabases } from './connections/tenant-databases.ts';
import { TenantFences } from './connections/tenant-fences.ts';
import type { ChangeFeed } from './control/change-feed.ts';
import { createGrantStore } from './control/connection-grants.ts';
import { controlServerIdentity, queryControl } from './control/database.ts';
import type { Directory } from './control/directory.ts';
import { createFenceStore } from './control/fence-store.ts';
import { loadTenant } from './control/load-tenant.ts';
import type { ProcessIdentity } from './control/process-identity.ts';
import type { TenantRecord } from './control/records.ts';
import type { Installation } from './installation.ts';
import { OperatorError } from './log/operator-error.ts';
import { createTenantOrm } from './tenancy/tenant-orm.ts';
import { tenantEntities } from './tenant-entities.ts';

interface OpenDatabasesOptions {
  config: Pick<Config, 'controlConnections' | 'connectionBudget' | 'tenantConnections' | 'acquireTimeoutMs'>;
  installation: Pick<Installation, 'control' | 'controlUrl' | 'secrets' | 'member'>;
  process: ProcessIdentity & { readonly heads: { readonly tenant: string; readonly control: string } };
  feed: ChangeFeed;
  directory: Pick<Directory, 'tenant'>;
  /** Receives the time for which a tenant has used a connection. */
  onUsed: (guid: string, ms: number) => void;
  /** Receives the tenant of a change that has ended. */
  onChanged: (guid: string) => void;
  log: Logger;
}

/** One in the pool, and the change feed. */
export const minControlConnections = 2;
/** Longer than other processes take to give connections back, or a killed one to be found. */
const maxBudgetWaitMs = 30_000;
const pollMs = 20;

/**
 * Makes the tenants' databases of a process, with its part of the connection budget and the fences of moves. Resolves
 * when the budget has room for the connections to the control database.
 * @throws {OperatorError} when the connection budget has no room for another process
 */
export async function openDatabases({
  config,
  installation: { control, controlUrl, secrets, member },
  process,
  feed,
  directory,
  onUsed,
  onChanged,
  log,
}: OpenDatabasesOptions): Promise<TenantDatabases> {
  const findTenants = async (names: readonly string[]): Promise<TenantRecord[]> => {
    const text = 'select guid from tenants where database_name = any($1)';
    const rows = await queryControl<{ guid: string }>(control, 'tenants_by_database', text, [names]);
    const found = await Promise.all(rows.map(({ guid }) => directory.tenant(guid)));
    return found.filter(tenant => tenant !== undefined);
  };
  const databases = new TenantDatabases({
    orm: createTenantOrm(tenantEntities),
    head: process.heads.tenant,
    controlUrl,
    controlIdentity: await controlServerIdentity(control),
    controlConnections: config.controlConnections + 1, // the change feed
    connectionBudget: config.connectionBudget,
    tenantConnections: config.tenantConnections,
    acquireTimeoutMs: config.acquireTimeoutMs,
    sharing: {
      store: createGrantStore(control, process, secrets),
      entry: member?.entry,
      log,
      findTenants,
    },
    onUsed,
    onChanged,
  });
  new TenantFences({
    feed,
    store: createFenceStore(control, controlUrl, process.id),
    databases,
    loadTenant: guid => loadTenant(guid, { control, controlUrl, secrets, log }),
    maxWaitMs: config.acquireTimeoutMs,
    log,
  });
  if (member) member.maxControl = () => Math.max(1, databases.budgets.maxControl - 1);
  await requireControlConnections(databases);
  member?.entry.release();
  return databases;
}

/** @throws {OperatorError} when the connection budget has no room for another process */
async function requireControlConnections(databases: TenantDatabases): Promise<void> {
  const deadline = performance.now() + maxBudgetWaitMs;
  while (databases.budgets.maxControl < minControlConnections) {
    if (performance.now() > deadline) {
      await databases.close();
      throw new OperatorError(
        'The other processes use all of CONNECTION_BUDGET, and gave back too little for another process within 30 s. ' +
          'Raise CONNECTION_BUDGET in all processes, or run fewer of them (npx backoffice processes shows them)',
      );
    }
    await delay(pollMs);
  }
}
