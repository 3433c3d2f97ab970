import pLimit, { type LimitFunction } from 'p-limit';
import type { ControlDatabase } from '../control/database.ts';
import { createLeaseLoop } from '../control/lease-loop.ts';
import type { TenantRecord } from '../control/records.ts';
import type { SecretBox } from '../control/secret-box.ts';
import { hasCode, problem } from '../errors.ts';
import type { Wake } from '../events/change-watch.ts';
import type { BackgroundTasks } from '../log/background-tasks.ts';
import type { DeliveryCounts } from '../metrics/webhook-metrics.ts';
import { serverAddress } from '../postgres/server-address.ts';
import { requestDeadlineMs, withDeadline } from '../runtime/deadline.ts';
import { changeInBackground } from '../tenancy/change-in-background.ts';
import type { ContextServices } from '../tenancy/request-context.ts';
import type { WebhookSender } from './send-webhook.ts';
import type { EndpointServices } from './serve-endpoint.ts';
import { createWakes, serveWebhooks, type Wakes } from './serve-webhooks.ts';
import { createWebhookQueue, type LeasedTenant, type ServedTenant, type WebhookQueue } from './webhook-queue.ts';
import { openTenantKey } from './webhook-secret.ts';
import { selectSummary } from './webhook-store.ts';

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

interface WebhookDispatcherOptions extends Pick<ContextServices, 'databases' | 'responseCache'> {
  control: ControlDatabase;
  secrets: SecretBox;
  directory: Pick<ContextServices['directory'], 'tenant'>;
  background: BackgroundTasks;
  sender: WebhookSender;
  /** Calls `wake` when the database of a tenant may have changed, until the returned function is called. */
  watch: (tenantGuid: string, wake: Wake) => () => void;
  /** Tells those who manage the settings of a tenant that an endpoint was disabled. */
  onDisabled: (tenant: TenantRecord, endpoint: { url: string }, reason: 'gone' | 'failing') => Promise<void>;
  /** Identifies this process. */
  processId: string;
  /** Unix time in ms. */
  now: () => number;
}

/** Of the changes of endpoints by the service: it disables one. The audit log names no user. */
const actor = JSON.stringify({ traceId: 'webhooks' });
const pollMs = 1_000;
/** Messages that are sent at the same time: of a tenant, of endpoints that fail or are slow, and in the process. */
const maxSending = { tenant: 20, slow: 100, process: 200 };
/** Queries of the databases of one server at the same time: the connections that webhooks take from its budget. */
const maxQueries = 8;
/**
 * Of them, first queries of tenants. So those that were begun are done first: with many at once, each would lose its
 * connection to another one before its next query.
 */
const maxBeginning = 2;
/** Then a tenant is given back, so that an endpoint with much to send does not keep another one from being found. */
const maxServiceMs = 30_000;
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
/** When changes are read again that were not final: nobody says when they are. */
const heldMs = 250;

export function createWebhookDispatcher(options: WebhookDispatcherOptions): WebhookDispatcher {
  const { control, directory, background, sender, watch, processId, now } = options;
  const queue = createWebhookQueue(control, processId);
  const stopping = new AbortController();
  const servers = new Map<string, { begin: LimitFunction; query: LimitFunction }>();
  /** The turns of queries, one server beside the other: one that does not respond delays no other. */
  const turnsOf = ({ databaseUrl }: TenantRecord) => {
    const address = serverAddress(databaseUrl);
    const turns = servers.get(address) ?? { begin: pLimit(maxBeginning), query: pLimit(maxQueries) };
    servers.set(address, turns);
    return turns;
  };
  const all = pLimit(maxSending.process);
  const slow = pLimit(maxSending.slow);
  const counts = {
    succeeded: 0,
    failed: 0,
    get running() {
      return all.activeCount;
    },
  };
  const watched = new Map<string, () => void>();
  const woken = new Map<string, string | undefined>();
  const serving = new Map<string, { wakes: Wakes; serverId: number }>();
  let polledAt = Number.NEGATIVE_INFINITY;

  const serve = async (leased: LeasedTenant, wakes: Wakes): Promise<ServedTenant> => {
    /** Looked up before each query: the tenant may be isolated, suspended or moved meanwhile. */
    const findServed = async (): Promise<TenantRecord> => {
      const found = await directory.tenant(leased.tenantGuid);
      if (found?.status !== 'active' || found.isIsolated) throw problem('tenant_inactive');
      return found;
    };
    const tenant = await findServed();
    const own = pLimit(maxSending.tenant);
    let until = Number.POSITIVE_INFINITY; // the wait for the first turn does not count
    const mayGoOn = (): boolean => !loop.isStopping && queue.isHeld(leased) && performance.now() < until;
    const turns = turnsOf(tenant);
    let hasBegun = false;
    const inTurn = async <T>(query: () => Promise<T>): Promise<T> => {
      if (hasBegun) return turns.query(query);
      hasBegun = true;
      const result = await turns.begin(() => turns.query(query));
      until = performance.now() + maxServiceMs;
      return result;
    };
    const services: EndpointServices = {
      read: statement =>
        inTurn(async () => {
          const driver = options.databases.open(await findServed());
          return withDeadline(requestDeadlineMs, deadline => driver.read(statement, deadline));
        }),
      change: statement =>
        inTurn(async () => changeInBackground(options, await findServed(), actor, async () => statement)),
      sealer: openTenantKey(options.secrets, tenant.guid, leased.sealedKey),
      sender,
      limit: (isSlow, send) => own(() => (isSlow ? slow(() => all(send)) : all(send))),
      now,
      random: Math.random,
      stopping: stopping.signal,
      mayGoOn,
      isServed: () =>
        findServed().then(
          () => true,
          () => false,
        ),
      onAttempt: ({ isSuccess }) => void (isSuccess ? counts.succeeded++ : counts.failed++),
      onDisabled: (endpoint, reason) =>
        void background.run('webhook_disabled', () => options.onDisabled(tenant, endpoint, reason)),
    };
    const isHeld = await serveWebhooks(services, wakes);
    const isUnfinished = !mayGoOn();
    const [summary] = (await services.read(selectSummary())) as unknown as (ServedTenant & { dueAt: number | null })[];
    if (!summary) throw new Error('there is no summary');
    if (isHeld) setTimeout(loop.wake, heldMs + 10).unref(); // when the tenant is due
    const dueInMs = summary.dueAt === null ? null : Math.max(0, summary.dueAt - now());
    const soonMs = isUnfinished || wakes.take() ? 0 : isHeld ? heldMs : dueInMs;
    return { ...summary, dueInMs: soonMs === null ? null : Math.min(soonMs, dueInMs ?? soonMs) };
  };
  const run = async (leased: LeasedTenant): Promise<void> => {
    const { tenantGuid, serverId } = leased;
    const wakes = createWakes();
    serving.set(tenantGuid, { wakes, serverId });
    try {
      const served = await serve(leased, wakes);
      serving.delete(tenantGuid);
      const isActive = await queue.release(leased, served);
      if (!isActive) unwatch(tenantGuid);
    } catch (error) {
      serving.delete(tenantGuid);
      await queue.postpone(leased, retryMs);
      // That this process serves no requests of the tenant is no failure.
      if (!hasCode(error, 'migration_pending', 'tenant_inactive')) throw error;
    } finally {
      loop.wake();
    }
  };
  const unwatch = (guid: string): void => {
    watched.get(guid)?.();
    watched.delete(guid);
  };
  const watchNew = async (): Promise<void> => {
    if (performance.now() - polledAt < pollMs) return;
    polledAt = performance.now();
    // The watch wakes a tenant that it begins to follow: the tenant may have changed before.
    for (const guid of await queue.newlyActive())
      if (!watched.has(guid))
        watched.set(
          guid,
          watch(guid, written => wake(guid, written)),
        );
  };
  const lease = async (): Promise<void> => {
    await watchNew();
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
  const loop = createLeaseLoop({ lease, renew: queue.renew, pollMs });
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
    start: loop.start,
    wake,
    stop: () => {
      loop.stop();
      stopping.abort();
      for (const guid of [...watched.keys()]) unwatch(guid);
    },
  };
}
