import type { Logger } from 'pino';
import { Breaker } from './breaker.ts';
import { CallLeases, leasedRate } from './call-leases.ts';
import { createProcessWindows, type ProcessWindows } from './process-windows.ts';
import { isOfCluster, redisFailure } from './redis-failure.ts';
import type { SharedWindows } from './shared-windows.ts';
import type { Rate, RateLimitResult } from './sliding-window.ts';

/** Counts the calls of every client: of all processes together when they share windows. */
export interface RateLimitStore {
  /**
   * Counts a call if the rate allows it. Never throws, and waits at most 80 ms for the shared
   * windows.
   */
  hit(key: string, rate: Rate): Promise<RateLimitResult>;
  /**
   * Counts a call if the rate allows it, as `hit` does; but calls of a busy client may be counted
   * in the shared windows before they are made, and then wait for nothing. All calls with this
   * key must be counted so.
   */
  hitAhead(key: string, rate: Rate): Promise<RateLimitResult>;
  /**
   * Returns the state of a window, without counting a call. Never throws, and waits as `hit`
   * does.
   */
  peek(key: string, rate: Rate): Promise<RateLimitResult>;
  /** True while the shared windows fail, and this process counts by itself. */
  readonly isFallback: boolean;
  close(): void;
}

/** Returns the milliseconds until all of the windows allow a call; 0 = now. */
export async function waitMsOf(
  store: Pick<RateLimitStore, 'peek'>,
  windows: readonly (readonly [key: string, Rate])[],
): Promise<number> {
  const states = await Promise.all(windows.map(([key, rate]) => store.peek(key, rate)));
  return Math.max(...states.map(({ remaining, resetMs }) => (remaining > 0 ? 0 : resetMs)));
}

interface RateLimitStoreOptions {
  /** Undefined = this process counts by itself. */
  redisUrl: string | undefined;
  /** The beginning of the keys in Redis. */
  installationId: string;
  log: Logger;
  /** Returns the time in milliseconds by a monotonic clock, for tests in which windows pass. */
  now?: (() => number) | undefined;
}

// A limit that is not exceeded, so that every probe writes: a Redis that is full, or a replica,
// must not pass.
const probeRate: Rate = { max: 1_000_000, windowMs: 1_000 };
/** The keys of a probe: so many are never all on one node of a cluster. */
const probeKeys = Array.from({ length: 16 }, (_, index) => `rl:probe:${index}`);

/**
 * Creates a store. Every process counts the calls that it allows, and passes to the shared
 * windows only calls that it would allow itself. This has three effects: each process enforces
 * the limits whatever happens to the shared windows, a client far above its limit causes no
 * calls to them, and when they fail the counts continue from where they are.
 */
export async function createRateLimitStore({
  redisUrl,
  installationId,
  log,
  now,
}: RateLimitStoreOptions): Promise<RateLimitStore> {
  const own = createProcessWindows(now);
  if (redisUrl) {
    const { RedisWindows } = await import('./redis-windows.ts'); // loads ioredis
    const shared = new RedisWindows({ url: redisUrl, installationId, now });
    return shareWindows(own, shared, log, now);
  }

  return {
    hit: async (key, rate) => own.hit(key, rate),
    hitAhead: async (key, rate) => own.hit(key, rate),
    peek: async (key, rate) => own.peek(key, rate),
    isFallback: false,
    close: () => {},
  };
}

async function shareWindows(
  own: ProcessWindows,
  shared: SharedWindows,
  log: Logger,
  now: () => number = () => performance.now(),
): Promise<RateLimitStore> {
  const report = reportFailures(log);
  const breaker = new Breaker({
    probe: () => Promise.all(probeKeys.map(key => shared.hit(key, probeRate))),
    onFailure: report.failure,
    onClose: report.success,
    onStuck: cause => shared.reconnect(cause),
  });

  await shared.started();
  await breaker.check();

  const countShared = (key: string, rate: Rate, calls?: number) =>
    breaker.call(() => shared.hit(key, rate, calls));
  const leases = new CallLeases(countShared, now);

  /** Counts a call of this process that the shared windows have allowed. */
  const countOwn = (key: string, rate: Rate, sharedResult?: RateLimitResult): RateLimitResult => {
    const ownResult = own.hit(key, rate);
    return sharedResult && sharedResult.remaining <= ownResult.remaining ? sharedResult : ownResult;
  };

  return {
    hit: async (key, rate) => {
      const before = own.peek(key, rate);
      if (before.remaining === 0) return before;
      const sharedResult = await countShared(key, rate);
      if (sharedResult?.remaining === 0) return sharedResult;
      // Among concurrent calls, Redis alone decides.
      return countOwn(key, rate, sharedResult);
    },
    hitAhead: async (key, rate) => {
      const before = own.peek(key, rate);
      if (before.remaining === 0) return before;

      const leased = breaker.isOpen ? undefined : leases.take(key, rate);
      if (leased) return countOwn(key, rate, leased);

      const sharedResult = await countShared(key, leasedRate(rate));
      if (sharedResult) leases.begin(key, rate, sharedResult.remaining);
      if (sharedResult?.remaining === 0) return sharedResult;
      return countOwn(key, rate, sharedResult);
    },
    peek: async (key, rate) => {
      const ownResult = own.peek(key, rate);
      if (ownResult.remaining === 0) return ownResult;
      const sharedResult = (await breaker.call(() => shared.peek(key, rate))) ?? ownResult;
      return sharedResult.remaining <= ownResult.remaining ? sharedResult : ownResult;
    },
    get isFallback() {
      return breaker.isOpen;
    },
    close: () => {
      breaker.stop();
      shared.close();
    },
  };
}

/**
 * Returns a function that writes a line for each reason for which Redis fails, and one when
 * Redis works again.
 */
function reportFailures(log: Logger) {
  const reported = new Set<string>();

  return {
    failure: (cause: unknown): void => {
      const failure = redisFailure(cause);
      if (reported.has(failure.reason)) return;
      reported.add(failure.reason);

      const fields = { event: 'rate_limits_own', ...failure };
      if (isOfCluster(failure)) {
        log.error(
          fields,
          'Redis is a cluster, which is not supported: each process counts rate limits by itself. ' +
            'Set REDIS_URL to a Redis that is no cluster.',
        );
      } else {
        log.warn(fields, 'Redis fails: each process counts rate limits by itself');
      }
    },
    success: (): void => {
      reported.clear();
      log.info(
        { event: 'rate_limits_shared' },
        'Redis works again: the processes share the counts of rate limits',
      );
    },
  };
}
