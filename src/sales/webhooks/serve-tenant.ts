import { LRUCache } from 'lru-cache';
import pLimit, { type LimitFunction } from 'p-limit';
import type { TenantRecord } from '../../control/records.ts';
import type { SecretBox } from '../../control/secret-box.ts';
import { serverAddress } from '../../lib/postgres/server-address.ts';
import { problem } from '../../lib/problems.ts';
import { requestDeadlineMs, withDeadline } from '../../lib/runtime/deadline.ts';
import { maxEntries } from '../../lib/runtime/lru-bounds.ts';
import type { Trace } from '../../lib/tracing/trace.ts';
import type { ContextServices } from '../../tenancy/request-context.ts';
import type { HeldFeeds } from '../events/held-feeds.ts';
import type { DisabledReason, StoredEndpoint } from './endpoint-state.ts';
import { readFailingWebhook } from './failing-webhook.ts';
import { SendRate } from './send-rate.ts';
import type { SendResult, WebhookSender } from './send-webhook.ts';
import type { EndpointServices } from './serve-endpoint.ts';
import { openMs, serveWebhooks, type Wakes } from './serve-webhooks.ts';
import type { LeasedTenant, ServedTenant } from './webhook-queue.ts';
import { findReader } from './webhook-reader.ts';
import { openTenantKey } from './webhook-secret.ts';

export interface ServeTenantOptions extends Pick<ContextServices, 'databases'> {
  secrets: SecretBox;
  directory: Pick<ContextServices['directory'], 'tenant' | 'user' | 'role'>;
  sender: WebhookSender;
  /** Begins the trace of serving a tenant; undefined: it is not traced. */
  beginTrace: () => Trace | undefined;
  heldFeeds: Pick<HeldFeeds, 'note'>;
  /** Notifies the people who manage the settings of a tenant that an endpoint was disabled. */
  onDisabled: (tenant: TenantRecord, endpoint: StoredEndpoint, reason: DisabledReason) => void;
  /** Aborted when the process stops: cuts off what is being sent. */
  stopping: AbortSignal;
  /** The time of the control database, in ms since 1970. */
  now: () => number;
}

/** One lease of a tenant that is being served. */
interface TenantRun {
  readonly leased: LeasedTenant;
  readonly wakes: Wakes;
  /** True while no other process can serve the tenant. */
  readonly isHeld: () => boolean;
}

/**
 * The actor of a change that the service makes to an endpoint, which it disables. The audit log
 * then names no user.
 */
const actor = JSON.stringify({ traceId: 'webhooks' });
/**
 * Messages that are sent at the same time: of a tenant, of endpoints that fail or are slow, and
 * in the process.
 */
const maxSending = { tenant: 20, slow: 100, process: 200 };
/**
 * Concurrent queries on one server for which a connection has to be opened: so many connections
 * webhooks take from the budget of the server. A change that this process has just made is read
 * on the connection that made it, without a turn.
 */
const maxQueries = 8;
/**
 * Maximum tenants whose rates are remembered: more than are served in a second, after which an
 * unused rate equals a new one.
 */
const maxRates = 1_000;
/**
 * The time after which a tenant is given back, so that an endpoint with much to send does not
 * keep another one from being found.
 */
const maxServiceMs = 30_000;

/**
 * Returns a function that serves the webhooks of one tenant, within limits that all tenants
 * share, until nothing is to be sent.
 */
export function createTenantServing(options: ServeTenantOptions) {
  const { directory, sender, stopping, now } = options;
  const turns = new Map<string, LimitFunction>();
  /**
   * Returns the turns of queries of the tenant's server. Each server has its own, so that one
   * that does not respond delays no other.
   */
  const turnsOf = ({ databaseUrl }: TenantRecord): LimitFunction => {
    const address = serverAddress(databaseUrl);
    const found = turns.get(address) ?? pLimit(maxQueries);
    turns.set(address, found);
    return found;
  };
  const rates = new LRUCache<string, SendRate>(maxEntries(maxRates));
  /** Returns the rate of a tenant, which goes on when the tenant is leased again. */
  const rateOf = (tenantGuid: string): SendRate => {
    const found = rates.get(tenantGuid) ?? new SendRate();
    rates.set(tenantGuid, found);
    return found;
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

  const serve = async (run: TenantRun, trace?: Trace): Promise<ServedTenant> => {
    /**
     * Finds the tenant before each query, because it may be isolated, suspended or moved
     * meanwhile.
     */
    const findServed = async (): Promise<TenantRecord> => {
      const found = await directory.tenant(run.leased.tenantGuid);
      if (found?.status !== 'active' || found.isIsolated) throw problem('tenant_inactive');
      return found;
    };
    const tenant = await findServed();
    const own = pLimit(maxSending.tenant);
    const rate = rateOf(tenant.guid);
    let until = Number.POSITIVE_INFINITY; // the wait for the first turn does not count
    const mayGoOn = (): boolean => !stopping.aborted && run.isHeld() && performance.now() < until;
    const turn = turnsOf(tenant);
    const inTurn = async <T>(query: (tenant: TenantRecord) => Promise<T>): Promise<T> => {
      const found = await findServed();
      const isConnected = options.databases.open(found).pool.idle.length > 0;
      const result = await (isConnected
        ? query(found)
        : turn(async () => query(await findServed())));
      until = Math.min(until, performance.now() + maxServiceMs);
      return result;
    };
    const services: EndpointServices = {
      read: statement =>
        inTurn(served =>
          withDeadline(requestDeadlineMs, deadline => {
            deadline.trace = trace;
            return options.databases.open(served).reads.read(statement, deadline);
          }),
        ),
      change: statement => {
        const change = { actor, change: statement, isUnfed: true };
        return inTurn(served => options.databases.open(served).change(change));
      },
      sealer: openTenantKey(options.secrets, tenant.guid, run.leased.sealedKey),
      readerOf: userId => findReader(directory, tenant.id, userId),
      send: (isSlow, url, request) => {
        const send = async (): Promise<SendResult | undefined> => {
          const isServed = await findServed().then(Boolean, () => false);
          if (!isServed || !mayGoOn()) return undefined;
          const startedAt = performance.now();
          const message = { ...request(), tenantGuid: tenant.guid };
          const result = await sender.send(message, stopping);
          if (result) counts[result.error ? 'failed' : 'succeeded']++;
          if (result) trace?.addStep('send', startedAt, performance.now(), stepOf(result));
          return result;
        };
        return own(async () => {
          await rate.turn(url, stopping);
          return isSlow ? slow(() => all(send)) : all(send);
        });
      },
      now,
      mayGoOn,
      onPage: isHeld => void options.heldFeeds.note(tenant.guid, isHeld, services.read),
      onDisabled: (endpoint, reason) => options.onDisabled(tenant, endpoint, reason),
    };
    const { endpoints, isOpen, written, feedCursor } = await serveWebhooks(
      services,
      run.wakes,
      run.leased.feedCursor,
    );
    const dueTimes = endpoints.flatMap(({ isEnabled, dueAt }) => (isEnabled ? (dueAt ?? []) : []));
    const waits = [
      ...dueTimes.map(at => Math.max(0, at - now())),
      ...(isOpen ? [openMs] : []),
      ...(mayGoOn() ? [] : [0]),
    ];
    const failing = await readFailingWebhook(services.read, endpoints);

    return {
      endpoints,
      failing,
      written,
      feedCursor,
      dueInMs: waits.length > 0 ? Math.min(...waits) : null,
    };
  };
  return {
    counts,
    serve: (run: TenantRun): Promise<ServedTenant> => {
      const trace = options.beginTrace();
      if (!trace) return serve(run);
      return trace.step('webhooks', { 'backoffice.tenant': run.leased.slug }, step =>
        serve(run, step),
      );
    },
  };
}

/** A status that is an error is its `error.type`, by the conventions of OpenTelemetry. */
const stepOf = ({ status, error }: SendResult) => ({
  attributes: {
    ...(status && { 'http.response.status_code': status }),
    ...(error && { 'error.type': status ? String(status) : error }),
  },
  isFailed: error !== null,
});
