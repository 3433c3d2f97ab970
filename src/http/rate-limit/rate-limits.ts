import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Context, Middleware } from 'koa';
import { problem } from '../../errors.ts';
import type { Trace } from '../../tracing/trace.ts';
import { type CountedNetwork, countedNetworks } from '../client-address.ts';
import { readBody } from '../read-body.ts';
import type { Route, RouteLimit } from '../route.ts';
import type { RateLimitStore } from './rate-limit-store.ts';
import { createDelay, type Delay } from './rejection-delay.ts';
import type { Rate, RateLimitResult } from './sliding-window.ts';

type Rates = Readonly<Record<'global' | RouteLimit, Rate>>;

interface RateLimitOptions {
  rates: Rates;
  store: RateLimitStore;
  /** Ends the delays of rejections when it is aborted. */
  draining: AbortSignal;
  /** Returns the account that a login body names, in canonical form; '' when it names none. */
  loginAccount: (body: object) => string;
}

/** Delay of the rejection of a login or a change of an account, in milliseconds. */
export const rejectionDelayMs = 2_000;

/** The rejection with this number closes its connection, so that what was sent after it is neither parsed nor counted. */
const maxRejections = 10;
/** The number of rejections on each connection. */
const rejections = new WeakMap<Socket, number>();

/** Creates the limits. Each limit has counters of its own, which do not count the calls that they reject. */
export function createRateLimits({ rates, store, draining, loginAccount }: RateLimitOptions) {
  const delay = createDelay(rejectionDelayMs, draining);
  const networkKey = (_ctx: Context, { network }: CountedNetwork): string => network;
  const limits: Record<RouteLimit, (bodyLimit: number) => Middleware> = {
    login: bodyLimit => {
      const key = async (ctx: Context, { network }: CountedNetwork) =>
        hashKey(network, await accountOf(ctx, bodyLimit));
      return limit({ name: 'rl:login', rate: rates.login, store, key, delay });
    },
    account: () => limit({ name: 'rl:account', rate: rates.account, store, key: networkKey, delay }),
    token: () => limit({ name: 'rl:token', rate: rates.token, store, key: networkKey }),
  };

  /** An unreadable body names no account. It is rejected later with the same error, when the route reads it. */
  async function accountOf(ctx: Context, bodyLimit: number): Promise<string> {
    const body = await readBody(ctx, bodyLimit).catch(() => ({}));
    return loginAccount(body);
  }

  return {
    /** Limits what `ofRoute` limits for routes of accounts, and counts it together with them. */
    ofAccounts: limits.account(0),
    /** Limits all requests of a client, before any work is done for a request. Requires `ctx.state.ipAddress`. */
    everyRequest: limit({ name: 'rl:global', rate: rates.global, store, key: networkKey }),
    /** Limits the requests to a route, before its tenant is resolved; undefined when the route has no own limit. */
    ofRoute: ({ rateLimit, bodyLimit }: Pick<Route, 'rateLimit' | 'bodyLimit'>) =>
      rateLimit ? limits[rateLimit](bodyLimit) : undefined,
  };
}

interface LimitOptions {
  name: `rl:${string}`;
  rate: Rate;
  store: RateLimitStore;
  /** Returns the key under which requests from a network are counted together. Never empty. */
  key: (ctx: Context, network: CountedNetwork) => string | Promise<string>;
  /** Delays each rejection. */
  delay?: Delay;
}

/** Sends the state of the limit in `RateLimit-*`, and rejects with 429 and `Retry-After`. Times are in seconds. */
function limit({ name, rate, store, key, delay }: LimitOptions): Middleware {
  const reject = async (ctx: Context, resetMs: number): Promise<never> => {
    await delay?.(ctx);
    const { socket } = ctx.req;
    const count = (rejections.get(socket) ?? 0) + 1;
    rejections.set(socket, count);
    const closing = count < maxRejections ? undefined : { Connection: 'close' };
    throw problem('rate_limited', { headers: { 'Retry-After': retryAfter(resetMs), ...closing } });
  };
  return async (ctx, next) => {
    const trace: Trace | undefined = ctx.state.trace;
    const startedAt = trace ? performance.now() : 0;
    // A request that the smallest network rejects does not count for the larger ones, which other clients share.
    for (const network of countedNetworks(ctx.state.ipAddress)) {
      const max = rate.max * network.factor;
      const { remaining, resetMs } = await store.hit(`${name}:${await key(ctx, network)}`, { ...rate, max });
      if (network.factor === 1 || remaining === 0) setRateHeaders(ctx, max, { remaining: remaining - 1, resetMs });
      if (remaining === 0) await reject(ctx, resetMs);
    }
    trace?.addStep('rate limit', startedAt, performance.now());
    await next();
  };
}

/** Describes a limit. @param state after the request */
export function setRateHeaders(ctx: Context, max: number, { remaining, resetMs }: RateLimitResult): void {
  ctx.set({
    'RateLimit-Limit': String(max),
    'RateLimit-Remaining': String(Math.max(0, remaining)),
    'RateLimit-Reset': String(Math.ceil(resetMs / 1_000)),
  });
}

/** The value of `Retry-After`. @param delayMs until the next request is allowed */
export function retryAfter(delayMs: number): string {
  return String(Math.max(1, Math.ceil(delayMs / 1_000)));
}

/** Hashes the parts of a key, so that no e-mail address leaves the process and no character is special to Redis. */
export function hashKey(...parts: string[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('base64url').slice(0, 32);
}
