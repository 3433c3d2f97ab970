import { PoolError } from '../postgres/database-error.ts';
import type { ConnectionBudget } from './connection-budget.ts';
import type { PoolState, TenantClientOptions, Waiter } from './pool-state.ts';
import type { TenantClient } from './tenant-client.ts';

const halfLifeMs = 30_000;

/**
 * The connections of one tenant, all taken from the budget of its server. It has the shape of a pool of `pg`, which is
 * what Kysely, and so MikroORM, takes its connections from.
 */
export class TenantPool implements PoolState<TenantClient> {
  /** Settings of the connections. */
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

  /** Connections that somebody has or that are on their way. */
  get inUseOrOpening(): number {
    return this.inUse + this.opening;
  }

  /**
   * How often it is asked for, of late: the logarithm (base 2) of a count in which every use weighs half as much after 30 s.
   * To be compared with that of another pool only: with time the count does not shrink, but newer uses weigh more.
   */
  get usageScore(): number {
    return this.#usageScore;
  }

  /** @throws {PoolError} */
  async connect(): Promise<TenantClient> {
    if (this.ended) throw closed();
    const weight = performance.now() / halfLifeMs;
    const [larger, smaller] = this.#usageScore > weight ? [this.#usageScore, weight] : [weight, this.#usageScore];
    this.#usageScore = larger + Math.log2(1 + 2 ** (smaller - larger));
    return this.budget.acquire(this);
  }

  /** Takes no more requests. Connections in use are closed when they are released. */
  async end(): Promise<void> {
    if (this.ended) return;
    this.ended = true;
    this.budget.endPool(this, closed());
  }
}

function closed(): PoolError {
  return new PoolError('POOL_CLOSED', 'this tenant database has been closed');
}
