import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { ChangeFeed } from '../../control/change-feed.ts';
import { changeTopics } from '../../control/change-topics.ts';
import type { FenceStore, TenantFence } from '../../control/fence-store.ts';
import type { TenantRecord } from '../../control/records.ts';
import { describeError } from '../../lib/log/describe-error.ts';
import { PoolError } from '../../lib/postgres/database-error.ts';
import { problem } from '../../lib/problems.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import { KeyedQueue } from '../../lib/runtime/keyed-queue.ts';
import type { TenantPool } from './tenant-pool.ts';

/** The view of the fences that a request that needs a connection has. */
export interface FenceView {
  /** True while requests of the tenant wait. */
  isClosed(guid: string): boolean;
  /**
   * Returns the connections of a tenant in the database that it has now; waits while its fence
   * is closed.
   * @throws {PoolError} `POOL_FENCED` when the fence was closed for too long
   */
  locate(guid: string, deadline?: Deadline): Promise<TenantPool>;
}

/** The functions of `TenantDatabases` that fences need. */
interface FencedDatabases {
  useFences(fences: FenceView): void;
  open(tenant: TenantRecord): { readonly pool: TenantPool };
  poolsOf(guid: string): TenantPool[];
  releasePools(tenant: TenantRecord): void;
}

interface TenantFencesOptions {
  feed: ChangeFeed;
  store: FenceStore;
  databases: FencedDatabases;
  /** Reads the record of a tenant from the control database, not from a cache. */
  loadTenant: (guid: string) => Promise<TenantRecord | undefined>;
  /** Maximum wait of a request, in ms. */
  maxWaitMs: number;
  log: Logger;
}

interface ClosedFence {
  id: string;
  /** Fires when requests have waited for too long. */
  readonly overdue: NodeJS.Timeout;
  /** Resolves to the record of the tenant after the fence. */
  readonly lifted: Promise<TenantRecord>;
  readonly lift: (record: Promise<TenantRecord>) => void;
}

const pollMs = 5;
const retryMs = 1_000;

/**
 * The fences of tenants whose databases are being replaced, as by a move, in one process. While
 * the fence of a tenant is closed, its requests wait for a connection, and cached responses are
 * served; then they go on in the tenant's new database, or in the old one again. The operator's
 * command ends the connections of the old database whatever this process does: a process that
 * confirms the fence only keeps its requests from failing.
 *
 * A process that has missed a fence, because it was stopped, finds that its connections are
 * gone and that the old database refuses it. It reads the control database then (`locate`), and
 * its requests wait or go on as above.
 */
export class TenantFences implements FenceView {
  readonly #options: TenantFencesOptions;
  readonly #closed = new Map<string, ClosedFence>();
  /** Reads of the fence of a tenant run one after the other. */
  readonly #refreshes = new KeyedQueue();

  constructor(options: TenantFencesOptions) {
    this.#options = options;
    options.feed.subscribe(changeTopics.fences, key => {
      this.refresh(key).catch(error => this.#reportFailure(key, error));
    });
    options.databases.useFences(this);
  }

  isClosed(guid: string): boolean {
    return this.#closed.has(guid);
  }

  /** Reads the fence of a tenant, or of all tenants (`*`), and obeys it. */
  refresh(guid: string): Promise<void> {
    return this.#refreshes.run(guid, () => this.#refresh(guid));
  }

  async locate(guid: string, deadline?: Deadline): Promise<TenantPool> {
    if (!this.#closed.has(guid)) await this.refresh(guid);
    const fence = this.#closed.get(guid);
    const record = fence ? await this.#wait(fence) : await this.#loadReleased(guid);
    deadline?.throwIfPassed();
    return this.#options.databases.open(record).pool;
  }

  async #wait(fence: ClosedFence): Promise<TenantRecord> {
    const timeout = Promise.withResolvers<never>();
    const giveUp = () =>
      timeout.reject(new PoolError('POOL_FENCED', 'the database of the tenant is being replaced'));
    const timer = setTimeout(giveUp, this.#options.maxWaitMs);
    try {
      return await Promise.race([fence.lifted, timeout.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #refresh(key: string): Promise<void> {
    const { store } = this.#options;
    const found = await store.read(key);
    const closed = found.filter(fence => fence.closed);
    for (const guid of key === '*' ? [...this.#closed.keys()] : [key]) {
      if (!closed.some(fence => fence.guid === guid)) this.#lift(guid);
    }
    for (const fence of closed) this.#close(fence);
    for (const fence of found) {
      this.#acknowledge(fence).catch(error => this.#reportFailure(fence.guid, error));
    }
  }

  #close({ guid, id }: TenantFence): void {
    const fence = this.#closed.get(guid);
    if (fence) {
      fence.id = id;
      return;
    }
    const { promise: lifted, resolve: lift } = Promise.withResolvers<TenantRecord>();
    lifted.catch(() => {}); // it may have no waiter
    const overdue = setTimeout(() => this.#reportOverdue(guid), this.#options.maxWaitMs).unref();
    this.#closed.set(guid, { id, overdue, lifted, lift });
    for (const pool of this.#options.databases.poolsOf(guid)) pool.hold();
  }

  #lift(guid: string): void {
    const fence = this.#closed.get(guid);
    if (!fence) return;
    clearTimeout(fence.overdue);
    this.#closed.delete(guid);
    fence.lift(this.#loadReleased(guid));
  }

  /**
   * Reads the record of a tenant whose fence is not closed, and lets requests use the pool of
   * its database.
   */
  async #loadReleased(guid: string): Promise<TenantRecord> {
    const { loadTenant, databases } = this.#options;
    const record = await loadTenant(guid);
    if (!record) throw problem('tenant_inactive');
    if (!this.#closed.has(guid)) databases.releasePools(record);
    return record;
  }

  /**
   * Confirms a fence: a fence that only begins, at once; a closed one, as soon as no connection
   * of the tenant exists.
   */
  async #acknowledge(fence: TenantFence): Promise<void> {
    const { databases, store } = this.#options;
    const isCurrent = (): boolean => this.#closed.get(fence.guid)?.id === fence.id;
    while (fence.closed && databases.poolsOf(fence.guid).some(pool => pool.isConnected)) {
      await sleep(pollMs, undefined, { ref: false });
      if (!isCurrent()) return;
    }
    await store.acknowledge(fence);
  }

  #reportOverdue(guid: string): void {
    this.#options.log.error(
      { event: 'fence_overdue', tenant: guid },
      'requests of the tenant get 503, because its database has been replaced for longer than ' +
        'ACQUIRE_TIMEOUT_MS; unless a command still works on it: ' +
        'bin/backoffice databases prune <slug>',
    );
  }

  #reportFailure(key: string, error: unknown): void {
    const { log } = this.#options;
    log.warn(
      { event: 'fence_failed', tenant: key, err: describeError(error) },
      'the fence of a tenant could not be read or confirmed; requests of the tenant may fail ' +
        'while it is moved',
    );
    setTimeout(
      () => this.refresh(key).catch(next => this.#reportFailure(key, next)),
      retryMs,
    ).unref();
  }
}
