import type { Logger } from 'pino';
import type { Beat } from '../control/beat.ts';
import type { ChangeFeed } from '../control/change-feed.ts';
import { closeIdleConnections } from '../control/control-pool.ts';
import { createFenceStore } from '../control/fence-store.ts';
import type { Installation } from '../control/installation.ts';
import { loadTenant } from '../control/load-tenant.ts';
import type { Config } from '../lib/config/config.ts';
import { maxProcesses } from '../lib/config/process-count.ts';
import { OperatorError } from '../lib/log/operator-error.ts';
import { readServerIdentity } from '../lib/postgres/server-address.ts';
import { tenantEntities } from '../sales/tenant-entities.ts';
import { TenantDatabases } from '../tenancy/connections/tenant-databases.ts';
import { TenantFences } from '../tenancy/connections/tenant-fences.ts';
import { createTenantOrm } from '../tenancy/tenant-orm.ts';

interface OpenDatabasesOptions {
  config: Pick<
    Config,
    'controlConnections' | 'connectionBudget' | 'tenantConnections' | 'acquireTimeoutMs'
  >;
  installation: Pick<Installation, 'control' | 'controlUrl' | 'member' | 'pool' | 'secrets'>;
  beat: Beat;
  /** The last tenant migration of this build. */
  head: string;
  feed: ChangeFeed;
  /** Receives the time for which a tenant has used a connection. */
  onUsed: (guid: string, ms: number) => void;
  log: Logger;
}

/**
 * Makes the tenants' databases of a process, with its share of the connection budget and the
 * fences of moves.
 */
export async function openDatabases({
  config,
  installation,
  beat,
  head,
  feed,
  onUsed,
  log,
}: OpenDatabasesOptions): Promise<TenantDatabases> {
  const { controlUrl, pool, secrets, member } = installation;
  const control = await installation.control();
  const databases = new TenantDatabases({
    orm: createTenantOrm(tenantEntities),
    head,
    controlUrl,
    controlIdentity: await readServerIdentity(pool),
    controlConnections: config.controlConnections + 1, // the change feed
    connectionBudget: config.connectionBudget,
    tenantConnections: config.tenantConnections,
    acquireTimeoutMs: config.acquireTimeoutMs,
    beat,
    onUsed,
  });
  const { budgets } = databases;

  new TenantFences({
    feed,
    store: createFenceStore(control, beat.process.id),
    databases,
    loadTenant: guid => loadTenant(guid, { control, controlUrl, secrets, log }),
    maxWaitMs: config.acquireTimeoutMs,
    log,
  });

  if (member) {
    member.maxControl = () => budgets.maxControl;
    member.onControlRefused = () => budgets.makeRoomForControl();
  }
  beat.onChange(() => {
    budgets.update();
    if (member) void closeIdleConnections(pool, budgets.maxControl).catch(() => {});
  });

  return databases;
}

/**
 * Lets the process join the other processes: from then on they share the connection budget with
 * it.
 * @throws {OperatorError} when the connection budget has no room for another process
 */
export async function joinProcesses(beat: Beat): Promise<void> {
  let refused = beat.fleet;
  const hasJoined = await beat.join(fleet => {
    refused = fleet;
    return fleet.services <= maxProcesses(fleet.budget);
  });
  if (hasJoined) return;

  const { budget, services } = refused;
  throw new OperatorError(
    `CONNECTION_BUDGET (${budget}) has room for ${maxProcesses(budget)} processes of the ` +
      `service, and this is number ${services}. Raise it in all processes, or end some of them ` +
      '(bin/backoffice processes shows them)',
  );
}
