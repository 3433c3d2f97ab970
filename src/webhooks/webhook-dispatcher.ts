import type { ControlDatabase } from '../control/database.ts';
import { createLeaseLoop } from '../control/lease-loop.ts';
import { hasCode } from '../errors.ts';
import type { ChangeWatch } from '../events/change-watch.ts';
import type { BackgroundTasks } from '../log/background-tasks.ts';
import type { DeliveryCounts } from '../metrics/webhook-metrics.ts';
import { createTenantServing, type ServeTenantOptions } from './serve-tenant.ts';
import { Wakes } from './serve-webhooks.ts';
import { type LeasedTenant, WebhookQueue } from './webhook-queue.ts';

/** Sends the changes of all tenants that this process leases to their webhooks. */
export interface WebhookDispatcher {
  readonly queue: WebhookQueue;
  readonly counts: DeliveryCounts;
  /** Begins to lease tenants, also those that other processes left when they ended. */
  start(): void;
  /**
   * Says that the webhooks of a tenant may have work.
   * @param written what a poll has seen, if it was a poll: another process that has seen the same need not serve it
   *   again
   */
  wake(tenantGuid: string, written?: string): void;
  /** Leases no more tenants, and cuts off what is being sent: it is sent again, with the same ids. */
  stop(): void;
}

interface WebhookDispatcherOptions extends Omit<ServeTenantOptions, 'stopping' | 'onDisabled'> {
  control: ControlDatabase;
  background: BackgroundTasks;
  watch: Pick<ChangeWatch, 'onServed'>;
  /** Tells those who manage the settings of a tenant that an endpoint was disabled. */
  onDisabled: (...disabled: Parameters<ServeTenantOptions['onDisabled']>) => Promise<void>;
  /** Identifies this process. */
  processId: string;
}

const pollMs = 1_000;
/**
 * While so many tenants of one server are served, no others of it are leased: each holds some memory, and a connection
 * only for a query.
 */
const maxOfServer = 200;
/** Tenants that are leased at once. */
const maxLeased = 100;
/** When a tenant is tried again whose database cannot be used. */
const retryMs = 5_000;

export function createWebhookDispatcher(options: WebhookDispatcherOptions): WebhookDispatcher {
  const { control, background, watch, processId } = options;
  const queue = new WebhookQueue(control, processId);
  const stopping = new AbortController();
  const { counts, serve } = createTenantServing({
    ...options,
    stopping: stopping.signal,
    onDisabled: (...disabled) => void background.run('webhook_disabled', () => options.onDisabled(...disabled)),
  });
  const woken = new Map<string, string | undefined>();
  const serving = new Map<string, { wakes: Wakes; serverId: number }>();
  /** True if tenants may be due for which there was no room. */
  let isFull = false;

  const run = async (leased: LeasedTenant): Promise<void> => {
    const { tenantGuid, serverId } = leased;
    const wakes = new Wakes();
    serving.set(tenantGuid, { wakes, serverId });
    try {
      const served = await serve({ leased, wakes, isHeld: () => queue.leases.isHeld(leased.id) });
      serving.delete(tenantGuid);
      if (wakes.take()) addWoken(tenantGuid, undefined);
      if (await queue.release(leased, served)) loop.wake();
      if ((served.dueInMs ?? pollMs) < pollMs) setTimeout(loop.wake, served.dueInMs! + 10).unref();
    } catch (error) {
      serving.delete(tenantGuid);
      await queue.postpone(leased, retryMs);
      // That this process serves no requests of the tenant is no failure.
      if (!hasCode(error, 'migration_pending', 'tenant_inactive')) throw error;
    } finally {
      if (isFull || woken.has(tenantGuid)) loop.wake();
    }
  };
  /** @returns the guids of the tenants */
  const leaseTenants = async (changed: readonly string[]): Promise<string[]> => {
    const ofServers = Map.groupBy(serving.values(), ({ serverId }) => serverId);
    const full = [...ofServers].filter(([, { length }]) => length >= maxOfServer).map(([serverId]) => serverId);
    const found = loop.isStopping ? [] : await queue.lease(maxLeased, full, changed);
    isFull = full.length > 0;
    for (const leased of found)
      if (!background.run('webhooks', () => run(leased))) await queue.postpone(leased, retryMs);
    if (found.length === maxLeased) loop.wake();
    return found.map(({ tenantGuid }) => tenantGuid);
  };
  /** A tenant that this process has changed is leased at once, without being marked as due. */
  const lease = async (): Promise<void> => {
    const asked = new Map(woken);
    woken.clear();
    try {
      const changed = [...asked.keys()].filter(guid => asked.get(guid) === undefined);
      for (const guid of await leaseTenants(changed)) asked.delete(guid);
      if (asked.size === 0) return;
      await queue.markDue(asked);
      loop.wake(); // leases those of them that are not leased
    } catch (error) {
      for (const [guid, written] of asked) addWoken(guid, written);
      throw error;
    }
  };
  const loop = createLeaseLoop({ lease, renew: queue.leases.renew, pollMs });
  /** What a commit has woken is served in any case. */
  const addWoken = (guid: string, written: string | undefined): void => {
    woken.set(guid, woken.has(guid) && woken.get(guid) === undefined ? undefined : written);
  };
  const wake = (guid: string, written?: string): void => {
    const wakes = serving.get(guid)?.wakes;
    if (wakes && written === undefined) {
      wakes.wake();
      return;
    }
    addWoken(guid, written);
    loop.wake();
  };
  return {
    queue,
    counts,
    start: () => {
      watch.onServed(wake);
      loop.start();
    },
    wake,
    stop: () => {
      loop.stop();
      stopping.abort();
    },
  };
}
