import { PoolError, sqlState } from '../../lib/postgres/database-error.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import type { ConnectionBudget } from './connection-budget.ts';
import type { PoolState, TenantClientOptions, Waiter } from './pool-state.ts';
import type { TenantClient } from './tenant-client.ts';

const usageHalfLifeMs = 30_000;
/**
 * Error codes which say that the tenant may have another database now: the database of the pool
 * belongs to another tenant, is gone or refuses the login, or the fence of the tenant closed
 * while a request waited for a connection.
 */
const leftStates = /^(TENANT_IDENTITY|3D000|28000|POOL_FENCED)$/;

/**
 * Returns the connections that take the place of a pool, once the fence of its tenant is
 * lifted.
 */
export type Relocate = (deadline?: Deadline) => Promise<TenantPool>;

/**
 * The connections of one tenant, all acquired from the budget of its server. It has the methods
 * of a `pg.Pool` that Kysely, and so MikroORM, calls: `connect` and `end`.
 */
export class TenantPool implements PoolState<TenantClient> {
  readonly options: TenantClientOptions;
  readonly cluster = { isEntered: false, mayRead: false };
  readonly idle: TenantClient[] = [];
  readonly waiting: Waiter<TenantClient>[] = [];
  inUse = 0;
  opening = 0;
  closing = 0;
  changedAt = Number.NEGATIVE_INFINITY;
  lastIdleAt = Number.NEGATIVE_INFINITY;
  readonly budget: ConnectionBudget;
  readonly onUsed: (ms: number) => void;
  readonly #relocate: Relocate | undefined;
  #usageScore = Number.NEGATIVE_INFINITY;
  #isClosed = false;
  #isHeld = false;

  /**
   * @param relocate called when the database may not be the tenant's any more; absent: the
   *   database is always the tenant's
   * @param onUsed called with the duration of each use of a connection, in milliseconds
   */
  constructor(
    budget: ConnectionBudget,
    options: TenantClientOptions,
    relocate?: Relocate,
    onUsed: (ms: number) => void = () => {},
  ) {
    this.budget = budget;
    this.options = options;
    this.onUsed = onUsed;
    this.#relocate = relocate;
  }

  get ended(): boolean {
    return this.#isClosed || this.#isHeld;
  }

  /** True while a connection is open, or being opened or closed. */
  get isConnected(): boolean {
    return this.inUse + this.opening + this.closing + this.idle.length > 0;
  }

  get inUseOrOpening(): number {
    return this.inUse + this.opening;
  }

  unmetDemand(max: number): number {
    const room = max - this.inUseOrOpening - this.closing;
    return Math.max(0, Math.min(this.waiting.length - this.opening, room));
  }

  /**
   * The logarithm (base 2) of an exponentially decaying count of uses: a use counts half as
   * much every 30 s. Newer uses weigh more, instead of a decay of old ones, so a score can only
   * be compared with that of another pool.
   */
  get usageScore(): number {
    return this.#usageScore;
  }

  /**
   * @param deadline of the request: the connection is destroyed if it is still in use then
   * @throws {PoolError} as `ConnectionBudget.acquire`, and `POOL_CLOSED` after `end`
   * @throws {DeadlineError} when the deadline has passed
   */
  async connect(deadline?: Deadline): Promise<TenantClient> {
    deadline?.throwIfPassed();
    if (!this.#isHeld) {
      try {
        return await this.#acquire(deadline);
      } catch (error) {
        if (!this.#relocate || !leftStates.test(sqlState(error) ?? '')) throw error;
        const pool = await this.#relocate(deadline);
        if (pool === this && sqlState(error) !== 'POOL_FENCED') throw error;
        return pool.connect(deadline);
      }
    }

    const pool = await this.#relocate?.(deadline);
    if (!pool) throw closedError();

    return pool.connect(deadline);
  }

  /** Opens the first connection ahead of the first request, if there is room for it. */
  openAhead(): void {
    if (!this.ended && !this.isConnected) this.budget.openAhead(this);
  }

  /**
   * Lets requests wait until the fence of the tenant is lifted, also those that wait for a
   * connection. Connections are closed as soon as they are not in use.
   */
  hold(): void {
    if (this.#isHeld) return;
    this.#isHeld = true;
    this.budget.endPool(
      this,
      new PoolError('POOL_FENCED', 'the database of the tenant is being replaced'),
    );
  }

  /** Lets requests go on after the fence was lifted: the tenant keeps this database. */
  release(): void {
    this.#isHeld = false;
  }

  /** Accepts no more requests. Connections in use are closed when they are released. */
  async end(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.budget.endPool(this, closedError());
  }

  async #acquire(deadline?: Deadline): Promise<TenantClient> {
    if (this.#isClosed) throw closedError();
    const weight = performance.now() / usageHalfLifeMs;
    const [larger, smaller] =
      this.#usageScore > weight ? [this.#usageScore, weight] : [weight, this.#usageScore];
    this.#usageScore = larger + Math.log2(1 + 2 ** (smaller - larger));
    const client = await this.budget.acquire(this, deadline);
    if (deadline) client.endAt(deadline);
    return client;
  }
}

function closedError(): PoolError {
  return new PoolError('POOL_CLOSED', 'this tenant database has been closed');
}
