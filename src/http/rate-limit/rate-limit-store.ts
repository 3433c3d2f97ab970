import type { Logger } from 'pino';
import { createBreaker } from './breaker.ts';
import { createRedisStore } from './redis-store.ts';
import { type Rate, type RateLimitResult, SlidingWindows } from './sliding-window.ts';

/** Counts the calls of every client, over all processes when there is a Redis. */
export interface RateLimitStore {
  /** Counts a call, unless it is one too many. Never fails, and never waits for long. */
  hit(key: string, rate: Rate): Promise<RateLimitResult>;
  close(): void;
}

interface RateLimitStoreOptions {
  /** Undefined = this process counts for itself. */
  redisUrl: string | undefined;
  log: Logger;
  /** Unix time in milliseconds, for tests in which windows must pass. */
  now?: (() => number) | undefined;
}

const maxClients = 100_000; // 25 MB, and at the very worst 100
// Its rate never runs out, so every probe writes: a Redis that is full, or a replica, must not pass.
const probe = { key: 'rl:probe', rate: { max: 1_000_000, windowMs: 1_000 } };

/**
 * Every process counts what it lets in, whether or not there is a Redis, and asks Redis only about calls that it would
 * let in itself. So a client is held to its limit by each process whatever happens to Redis, a client far above its
 * limit costs Redis nothing, and when Redis fails the count goes on from where it was.
 */
export async function createRateLimitStore({ redisUrl, log, now }: RateLimitStoreOptions): Promise<RateLimitStore> {
  const own = new SlidingWindows(maxClients);
  const clock = now ?? monotonic;
  if (!redisUrl) return { hit: async (key, rate) => own.hit(key, rate, clock()), close: () => {} };

  const shared = createRedisStore(redisUrl, now);
  const breaker = createBreaker({
    probe: () => shared.hit(probe.key, probe.rate),
    onOpen: cause =>
      log.warn({ event: 'rate_limits_own', reason: reason(cause) }, 'Redis fails: each process limits by itself'),
    onClose: () => log.info({ event: 'rate_limits_shared' }, 'Redis works again: limits are shared by all processes'),
  });
  await shared.started();
  await breaker.check();
  return {
    hit: async (key, rate) => {
      const at = clock();
      const verdict = own.hit(key, rate, at);
      if (verdict.remaining === 0) return verdict;
      const all = await breaker.call(() => shared.hit(key, rate));
      if (all === undefined) return verdict;
      if (all.remaining === 0) own.undo(key, at);
      return all.remaining <= verdict.remaining ? all : verdict;
    },
    close: () => {
      breaker.close();
      shared.close();
    },
  };
}

/** Does not jump when the clock of the machine is set. */
function monotonic(): number {
  return performance.timeOrigin + performance.now();
}

/** A code, or the first word of what Redis said (`OOM`, `READONLY`, …): never a command, which holds addresses. */
function reason(error: unknown): string {
  const { code, message = '' } = error as { code?: string; message?: string };
  return code ?? /^[A-Z]{3,}\b/.exec(message)?.[0] ?? 'no answer';
}
