import type { Registry } from 'prom-client';
import { addCounter } from './collectors.ts';

/** The requests of one tenant. */
interface TenantCount {
  /** Requests that were counted under its name. */
  named: number;
  /** Requests since the names were given. */
  recent: number;
  isNamed: boolean;
}

/** Tenants that the metrics name. */
export const maxNamed = 20;
const other = 'other';
const windowMs = 5 * 60_000;
/** So that tenants with about the same traffic do not take turns. */
const namedWeight = 2;
/** Tenants without a name whose earlier counts are kept, for when they get their name back. */
const maxFormer = 1_000;

/**
 * Counts requests by tenant for the metrics: those of the 20 busiest tenants under their slug, all others as `other`.
 *
 * A counter of Prometheus must never fall. So each request is counted once, under the name that its tenant has at that
 * moment, and nothing is moved between names later: the sum of all rates is right, also while names change.
 *
 *   names      The first 20 tenants get a name at once. The names are given anew after the first scrape in 5 minutes,
 *              to those with the most requests since the last time; a tenant that has a name counts double.
 *   reset      A tenant that loses its name has no series. When it gets the name back, its counter goes on from its
 *              last value, or after 1,000 others have lost theirs, from 0.
 *
 * The counts are exact, and bounded by the tenants with a request since the names were given.
 */
export class BusiestTenants {
  readonly #clock: () => number;
  readonly #tenants = new Map<string, TenantCount>();
  #named = 0;
  #other = 0;
  #givenAt: number;

  /** @param clock a monotonic clock in milliseconds */
  constructor(clock = () => performance.now()) {
    this.#clock = clock;
    this.#givenAt = clock();
  }

  /** Counts requests of a tenant. A tenant with the slug `other` is one of the others. */
  add(slug: string, requests = 1): void {
    if (slug === other) {
      this.#other += requests;
      return;
    }
    const tenant = this.#tenants.get(slug) ?? this.#addTenant(slug);
    tenant.recent += requests;
    if (tenant.isNamed) tenant.named += requests;
    else this.#other += requests;
  }

  /**
   * Returns the requests of each tenant that has a name, and of `other` if there are any. Gives the names anew
   * afterwards, so that each request is in a scrape under the name that it was counted with.
   */
  read(): [string, number][] {
    const counts = [...this.#tenants].flatMap(([slug, { isNamed, named }]): [string, number][] =>
      isNamed ? [[slug, named]] : [],
    );
    if (this.#clock() - this.#givenAt >= windowMs) this.#giveNames();
    return this.#other > 0 ? [...counts, [other, this.#other]] : counts;
  }

  #addTenant(slug: string): TenantCount {
    const isNamed = this.#named < maxNamed;
    if (isNamed) this.#named++;
    const tenant = { named: 0, recent: 0, isNamed };
    this.#tenants.set(slug, tenant);
    return tenant;
  }

  #giveNames(): void {
    this.#givenAt = this.#clock();
    const score = ({ recent, isNamed }: TenantCount): number => (isNamed ? recent * namedWeight + 1 : recent);
    const candidates = [...this.#tenants].filter(([, tenant]) => score(tenant) > 0);
    const busiest = candidates.sort(([, a], [, b]) => score(b) - score(a)).slice(0, maxNamed);
    const names = new Set(busiest.map(([slug]) => slug));
    this.#named = names.size;
    for (const [slug, tenant] of this.#tenants) {
      tenant.isNamed = names.has(slug);
      tenant.recent = 0;
      if (!tenant.isNamed && tenant.named === 0) this.#tenants.delete(slug);
    }
    for (const [slug, { isNamed }] of this.#tenants) {
      if (this.#tenants.size <= maxFormer + maxNamed) break;
      if (!isNamed) this.#tenants.delete(slug);
    }
  }
}

/** The metric that `addTenantRequests` registers. */
export const tenantRequests = 'tenant_requests_total';

/** Registers the requests of the busiest tenants. */
export function addTenantRequests(registry: Registry, tenants: BusiestTenants): void {
  addCounter(registry, {
    name: tenantRequests,
    help: `Requests of authenticated users by tenant: the ${maxNamed} busiest tenants by slug, all others as "other".`,
    labelNames: ['tenant'],
    read: () => tenants.read().map(([tenant, value]) => ({ labels: { tenant }, value })),
  });
}
