import type { Logger } from 'pino';
import { createBreaker } from './breaker.ts';
import { createRedisStore } from './redis-store.ts';
import { type Rate, type RateLimitResult, SlidingWindows } from './sliding-window.ts';

/** Counts the calls of every client: of all processes together when there is a Redis. */
export interface RateLimitStore {
  /** Counts a call if the rate allows it. Never throws, and waits at most 80 ms (for Redis). */
  hit(key: string, rate: Rate): Promise<RateLimitResult>;
  /** Returns the state of a window, without counting a call. Never throws, and waits at most 80 ms (for Redis). */
  peek(key: string, rate: Rate): Promise<RateLimitResult>;
  /** True while Redis fails, and this process counts by itself. */
  readonly isFallback: boolean;
  close(): void;
}

interface RateLimitStoreOptions {
  /** Undefined = this process counts by itself. */
  redisUrl: string | undefined;
  log: Logger;
  /** Returns Unix time in milliseconds, for tests in which windows pass. */
  now?: (() => number) | undefined;
}

const maxWindows = 100_000; // of each kind: 25 MB, in the worst case 100 MB

/**
 * Prefix of the keys that count failed logins to an account. They have windows of their own: any request can add
 * windows to the others, also a login without a tenant, and would drop these. Each window here takes a password hash.
 */
export const failuresPrefix = 'rl:failures:';
// Its rate never runs out, so every probe writes: a Redis that is full, or a replica, must not pass.
const probe = { key: 'rl:probe', rate: { max: 1_000_000, windowMs: 1_000 } };

/**
 * Creates a store. Every process counts the calls that it allows, with or without Redis, and passes to Redis only calls
 * that it would allow itself. This has three effects: each process enforces the limits whatever happens to Redis, a
 * client far above its limit causes no calls to Redis, and when Redis fails the counts continue from where they are.
 */
export async function createRateLimitStore({ redisUrl, log, now }: RateLimitStoreOptions): Promise<RateLimitStore> {
  const failureWindows = new SlidingWindows(maxWindows);
  const requestWindows = new SlidingWindows(maxWindows);
  const ownWindows = (key: string): SlidingWindows =>
    key.startsWith(failuresPrefix) ? failureWindows : requestWindows;
  const clock = now ?? monotonicUnixTime;
  if (!redisUrl)
    return {
      hit: async (key, rate) => ownWindows(key).hit(key, rate, clock()),
      peek: async (key, rate) => ownWindows(key).peek(key, rate, clock()),
      isFallback: false,
      close: () => {},
    };

  const shared = createRedisStore(redisUrl, now);
  const breaker = createBreaker({
    probe: () => shared.hit(probe.key, probe.rate),
    onOpen: cause =>
      log.warn(
        { event: 'rate_limits_own', reason: reason(cause) },
        'Redis fails: each process counts rate limits by itself',
      ),
    onClose: () =>
      log.info({ event: 'rate_limits_shared' }, 'Redis works again: all processes share the counts of rate limits'),
  });
  await shared.started();
  await breaker.check();
  return {
    hit: async (key, rate) => {
      const at = clock();
      const ownResult = ownWindows(key).hit(key, rate, at);
      if (ownResult.remaining === 0) return ownResult;
      const sharedResult = await breaker.call(() => shared.hit(key, rate));
      if (sharedResult === undefined) return ownResult;
      if (sharedResult.remaining === 0) ownWindows(key).undo(key, at);
      return sharedResult.remaining <= ownResult.remaining ? sharedResult : ownResult;
    },
    peek: async (key, rate) => {
      const ownResult = ownWindows(key).peek(key, rate, clock());
      if (ownResult.remaining === 0) return ownResult;
      const sharedResult = await breaker.call(() => shared.peek(key, rate));
      return sharedResult && sharedResult.remaining <= ownResult.remaining ? sharedResult : ownResult;
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

/** Returns Unix time in milliseconds that does not jump when the clock of the machine is set. */
function monotonicUnixTime(): number {
  return performance.timeOrigin + performance.now();
}

/** Returns an error code, or the first word of a Redis error (`OOM`): never the command, which contains addresses. */
function reason(error: unknown): string {
  const { code, message = '' } = error as { code?: string; message?: string };
  return code ?? /^[A-Z]{3,}\b/.exec(message)?.[0] ?? 'no reply';
}
