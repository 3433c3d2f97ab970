import type { ControlDatabase } from '../../control/database.ts';
import { createLeaseLoop } from '../../control/lease-loop.ts';
import type { BackgroundTasks } from '../../lib/log/background-tasks.ts';
import { hasCode } from '../../lib/problems.ts';
import type { ChangeWatch } from '../events/change-watch.ts';
import { createTenantServing, type ServeTenantOptions } from './serve-tenant.ts';
import { Wakes } from './serve-webhooks.ts';
import type { DeliveryCounts } from './webhook-metrics.ts';
import { type LeasedTenant, WebhookQueue } from './webhook-queue.ts';

interface WebhookDispatcherOptions extends Omit<ServeTenantOptions, 'stopping' | 'onDisabled'> {
  control: ControlDatabase;
  background: BackgroundTasks;
  watch: Pick<ChangeWatch, 'onServed'>;
  /** Notifies the people who manage the settings of a tenant that an endpoint was disabled. */
  onDisabled: (...disabled: Parameters<ServeTenantOptions['onDisabled']>) => Promise<void>;
  /** Identifies this process. */
  processId: string;
}

const pollMs = 1_000;
/**
 * Maximum tenants of one server that are served at a time: each holds some memory, and a
 * connection only for a query.
 */
const maxOfServer = 200;
/** Tenants that are leased at once. */
const maxLeased = 100;
/** The wait before a tenant whose database cannot be used is tried again. */
const retryMs = 5_000;

/** A tenant that this process serves. */
interface ServedNow {
  readonly wakes: Wakes;
  readonly serverId: number;
}

/** Sends the changes of all tenants that this process leases to their webhooks. */
export class WebhookDispatcher {
  readonly queue: WebhookQueue;
  readonly counts: DeliveryCounts;
  readonly #options: WebhookDispatcherOptions;
  readonly #serve: ReturnType<typeof createTenantServing>['serve'];
  readonly #loop: ReturnType<typeof createLeaseLoop>;
  readonly #stopping = new AbortController();
  readonly #serving = new Map<string, ServedNow>();
  /** Tenants that have work in any case: leased next, without being marked as due before. */
  #changed = new Set<string>();
  /**
   * The counters of tenants in which a poll has seen new rows: another process may have served
   * these rows.
   */
  #polled = new Map<string, string>();
  /** True if tenants may be due for which there was no room. */
  #isFull = false;

  constructor(options: WebhookDispatcherOptions) {
    const { control, background, processId } = options;
    this.#options = options;
    this.queue = new WebhookQueue(control, processId);

    const { counts, serve } = createTenantServing({
      ...options,
      stopping: this.#stopping.signal,
      onDisabled: (...disabled) =>
        void background.run('webhook_disabled', () => options.onDisabled(...disabled)),
    });
    this.counts = counts;
    this.#serve = serve;
    this.#loop = createLeaseLoop({
      lease: () => this.#lease(),
      renew: this.queue.leases.renew,
      pollMs,
    });
  }

  /** Begins to lease tenants, also those that other processes left when they ended. */
  start(): void {
    this.#options.watch.onServed((guid, written) => this.wake(guid, written));
    this.#loop.start();
  }

  /**
   * Serves the webhooks of a tenant soon, because they may have work.
   * @param written the counters that a poll has seen, if it was a poll: another process that
   *   has seen the same ones need not serve the tenant again
   */
  wake(tenantGuid: string, written?: string): void {
    const served = this.#serving.get(tenantGuid);
    if (served && written === undefined) {
      served.wakes.wake();
      return;
    }

    if (written === undefined) this.#changed.add(tenantGuid);
    else this.#polled.set(tenantGuid, written);
    this.#loop.wake();
  }

  /**
   * Leases no more tenants, and cuts off what is being sent: it is sent again, with the same
   * ids.
   */
  stop(): void {
    this.#loop.stop();
    this.#stopping.abort();
  }

  /**
   * Leases tenants that are due or have changed. Marks the changed ones that it could not lease
   * as due, so that their present holder, or the next one, serves them.
   */
  async #lease(): Promise<void> {
    const changed = this.#changed;
    const polled = this.#polled;
    this.#changed = new Set();
    this.#polled = new Map();

    try {
      for (const guid of await this.#begin([...changed])) {
        changed.delete(guid);
        polled.delete(guid);
      }

      const asked = new Map<string, string | undefined>(polled);
      for (const guid of changed) {
        asked.set(guid, undefined);
      }
      if (asked.size === 0) return;

      await this.queue.markDue(asked);
      this.#loop.wake(); // leases those of them that nobody else leases
    } catch (error) {
      for (const guid of changed) {
        this.#changed.add(guid);
      }
      for (const [guid, written] of polled) {
        if (!this.#polled.has(guid)) this.#polled.set(guid, written);
      }
      throw error;
    }
  }

  /**
   * Leases tenants and begins to serve them.
   * @returns their guids
   */
  async #begin(changed: readonly string[]): Promise<string[]> {
    const full = this.#fullServers();
    const leasedTenants = this.#loop.isStopping
      ? []
      : await this.queue.lease(maxLeased, full, changed);
    this.#isFull = full.length > 0;

    for (const leased of leasedTenants) {
      const begun = this.#options.background.run('webhooks', () => this.#serveTenant(leased));
      if (!begun) await this.queue.postpone(leased, retryMs);
    }

    if (leasedTenants.length === maxLeased) this.#loop.wake();

    return leasedTenants.map(({ tenantGuid }) => tenantGuid);
  }

  /** The ids of the servers with `maxOfServer` tenants that are being served. */
  #fullServers(): number[] {
    const ofServers = Map.groupBy(this.#serving.values(), ({ serverId }) => serverId);

    return [...ofServers]
      .filter(([, { length }]) => length >= maxOfServer)
      .map(([serverId]) => serverId);
  }

  async #serveTenant(leased: LeasedTenant): Promise<void> {
    const { tenantGuid, serverId } = leased;
    const wakes = new Wakes();
    this.#serving.set(tenantGuid, { wakes, serverId });

    try {
      const served = await this.#serve({
        leased,
        wakes,
        isHeld: () => this.queue.leases.isHeld(leased.id),
      });

      this.#serving.delete(tenantGuid);
      if (wakes.take()) this.#changed.add(tenantGuid);

      if (await this.queue.release(leased, served)) this.#loop.wake();
      const dueInMs = served.dueInMs ?? pollMs;
      if (dueInMs < pollMs) setTimeout(this.#loop.wake, dueInMs + 10).unref();
    } catch (error) {
      this.#serving.delete(tenantGuid);
      await this.queue.postpone(leased, retryMs);
      // It is no failure that this process serves no requests of the tenant.
      if (!hasCode(error, 'migration_pending', 'tenant_inactive')) throw error;
    } finally {
      const isWoken = this.#changed.has(tenantGuid) || this.#polled.has(tenantGuid);
      if (this.#isFull || isWoken) this.#loop.wake();
    }
  }
}
