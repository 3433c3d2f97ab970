/**
 * The usage of one tenant in one hour. Numbers are added in place, so that a request allocates
 * nothing.
 */
export interface TenantUsage {
  readonly tenant: string;
  /** Begin of the hour, as Unix time in milliseconds. */
  readonly hour: number;
  requests: number;
  refused: number;
  writes: number;
  responseBytes: number;
  databaseMs: number;
}

/** The facts of a request that are counted. */
export interface CountedRequest {
  readonly method: string;
  readonly status: number;
  /** Bytes of the response body, as they were sent. */
  readonly bytes: number;
}

interface Hour {
  readonly startsAt: number;
  readonly tenants: Map<string, TenantUsage>;
}

const hourMs = 3_600_000;
/**
 * Hours in memory while the control database is away: 10,000 tenants take about 1 MB in each.
 */
const maxHours = 24;

/**
 * Counts what tenants use, by tenant and hour, until `take`. Only tenants of authenticated
 * callers are counted, so their number is bounded by that of the tenants. After 24 hours
 * without `take`, the counts of later hours are added to the last hour: nothing is lost, and
 * the memory stays bounded.
 */
export class UsageCounts {
  readonly #now: () => number;
  #hours: Hour[] = [];
  #current: Hour;
  #endsAt = 0;
  #requests = 0;

  /** @param now Unix time in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
    this.#current = this.#beginHour();
  }

  /** Requests since `take`. */
  get requests(): number {
    return this.#requests;
  }

  /**
   * Counts a request that has ended: as refused with status 429 or 503, and as a write if it
   * succeeded and is no GET.
   */
  count(tenant: string, { method, status, bytes }: CountedRequest): void {
    const usage = this.#of(tenant);
    usage.requests++;
    usage.responseBytes += bytes;
    if (status === 429 || status === 503) usage.refused++;
    else if (status < 400 && method !== 'GET' && method !== 'HEAD') usage.writes++;
    this.#requests++;
  }

  /** Adds the time in which a connection to the database of the tenant was in use. */
  addDatabaseTime(tenant: string, ms: number): void {
    this.#of(tenant).databaseMs += ms;
  }

  /** Returns all counts, and begins again at 0. */
  take(): TenantUsage[] {
    const taken = this.#hours.flatMap(({ tenants }) => [...tenants.values()]);
    this.#hours = [];
    this.#requests = 0;
    this.#current = this.#beginHour();
    return taken;
  }

  #of(tenant: string): TenantUsage {
    if (this.#now() >= this.#endsAt) this.#endHour();
    const { startsAt: hour, tenants } = this.#current;
    let usage = tenants.get(tenant);
    if (!usage) {
      usage = { tenant, hour, requests: 0, refused: 0, writes: 0, responseBytes: 0, databaseMs: 0 };
      tenants.set(tenant, usage);
    }
    return usage;
  }

  #endHour(): void {
    if (this.#hours.length < maxHours) this.#current = this.#beginHour();
    else this.#endsAt += hourMs;
  }

  #beginHour(): Hour {
    const now = this.#now();
    const hour: Hour = { startsAt: now - (now % hourMs), tenants: new Map() };
    this.#hours.push(hour);
    this.#endsAt = hour.startsAt + hourMs;
    return hour;
  }
}
