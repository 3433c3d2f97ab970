import type { Deadline } from '../deadline.ts';
import { PoolError } from '../postgres/database-error.ts';
import type { ConnectionBudget } from './connection-budget.ts';
import type { PoolState, TenantClientOptions, Waiter } from './pool-state.ts';
import type { TenantClient } from './tenant-client.ts';

const usageHalfLifeMs = 30_000;

/**
 * The connections of one tenant, all acquired from the budget of its server. It has the methods of a `pg.Pool` that
 * Kysely, and so MikroORM, calls: `connect` and `end`.
 */
export class TenantPool implements PoolState<TenantClient> {
  readonly options: TenantClientOptions;
  readonly idle: TenantClient[] = [];
  readonly waiting: Waiter<TenantClient>[] = [];
  inUse = 0;
  opening = 0;
  closing = 0;
  ended = false;
  readonly budget: ConnectionBudget;
  #usageScore = Number.NEGATIVE_INFINITY;

  constructor(budget: ConnectionBudget, options: TenantClientOptions) {
    this.budget = budget;
    this.options = options;
  }

  get inUseOrOpening(): number {
    return this.inUse + this.opening;
  }

  /**
   * The logarithm (base 2) of an exponentially decaying count of uses: a use counts half as much every 30 s. Only
   * comparable with the score of another pool: instead of decaying old uses, newer uses weigh more.
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
    if (this.ended) throw closedError();
    deadline?.check();
    const weight = performance.now() / usageHalfLifeMs;
    const [larger, smaller] = this.#usageScore > weight ? [this.#usageScore, weight] : [weight, this.#usageScore];
    this.#usageScore = larger + Math.log2(1 + 2 ** (smaller - larger));
    const client = await this.budget.acquire(this, deadline);
    if (deadline) client.endAt(deadline);
    return client;
  }

  /** Accepts no more requests. Connections in use are closed when they are released. */
  async end(): Promise<void> {
    if (this.ended) return;
    this.ended = true;
    this.budget.endPool(this, closedError());
  }
}

function closedError(): PoolError {
  return new PoolError('POOL_CLOSED', 'this tenant database has been closed');
}
