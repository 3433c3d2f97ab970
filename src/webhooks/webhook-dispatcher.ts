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
   * @param written what a poll has seen, if it was a poll: another process that has seen the same need not serve it again
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
 * Tenants that are served at the same time, and so many of one server at most before others of it are leased; each holds
 * some memory, and a connection only for a query. A server that does not respond leaves room for the tenants of others.
 */
const maxTenants = 400;
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

  const run = async (leased: LeasedTenant): Promise<void> => {
    const { tenantGuid, serverId } = leased;
    const wakes = new Wakes();
    serving.set(tenantGuid, { wakes, serverId });
    try {
      const served = await serve({ leased, wakes, isHeld: () => queue.leases.isHeld(leased.id) });
      serving.delete(tenantGuid);
      if (wakes.take()) addWoken(tenantGuid, undefined);
      await queue.release(leased, served);
      if ((served.dueInMs ?? pollMs) < pollMs) setTimeout(loop.wake, served.dueInMs! + 10).unref();
    } catch (error) {
      serving.delete(tenantGuid);
      await queue.postpone(leased, retryMs);
      // That this process serves no requests of the tenant is no failure.
      if (!hasCode(error, 'migration_pending', 'tenant_inactive')) throw error;
    } finally {
      loop.wake();
    }
  };
  const lease = async (): Promise<void> => {
    if (woken.size > 0) {
      const marked = new Map(woken);
      woken.clear();
      await queue.markDue(marked).catch(error => {
        for (const [guid, written] of marked) addWoken(guid, written);
        throw error;
      });
    }
    const free = Math.min(maxLeased, maxTenants - serving.size);
    if (free <= 0 || loop.isStopping) return;
    const ofServers = Map.groupBy(serving.values(), ({ serverId }) => serverId);
    const full = [...ofServers].filter(([, { length }]) => length >= maxOfServer).map(([serverId]) => serverId);
    const found = await queue.lease(free, full);
    for (const leased of found)
      if (!background.run('webhooks', () => run(leased))) await queue.postpone(leased, retryMs);
    if (found.length === maxLeased) loop.wake();
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
