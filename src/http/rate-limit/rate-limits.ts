import { createHash } from 'node:crypto';
import type { Context, Middleware } from 'koa';
import ratelimit from 'koa-ratelimit';
import { problem } from '../../errors.ts';
import { type CountedNetwork, countedNetworks } from '../client-address.ts';
import { readBody } from '../read-body.ts';
import type { Route, RouteLimit } from '../route.ts';
import type { RateLimitStore } from './rate-limit-store.ts';
import { createDelay, type Delay } from './rejection-delay.ts';
import type { Rate } from './sliding-window.ts';

type Rates = Readonly<Record<'global' | RouteLimit, Rate>>;

export interface RateLimits {
  /** For every request, before anything is done for it. Needs `ctx.state.ipAddress`. */
  readonly everyRequest: Middleware;
  /** For the requests of a route, before its tenant is looked up; undefined when it has no limit of its own. */
  ofRoute(route: Pick<Route, 'rateLimit' | 'bodyLimit'>): Middleware | undefined;
}

interface RateLimitOptions {
  rates: Rates;
  store: RateLimitStore;
  /** Aborted when the service is to stop. */
  stopping: AbortSignal;
  /** The account that a login body names, in the one form in which it is counted; '' when it names none. */
  loginAccount: (body: object) => string;
}

const rejectionDelayMs = 2_000;

/** Every limit has a counter of its own. A call that is refused by one is not counted by it. */
export function createRateLimits({ rates, store: windows, stopping, loginAccount }: RateLimitOptions): RateLimits {
  const delay = createDelay(rejectionDelayMs, stopping);
  const network = (_ctx: Context, { network }: CountedNetwork): string => network;
  const limits: Record<RouteLimit, (bodyLimit: number) => Middleware> = {
    login: bodyLimit => {
      const key = async (ctx: Context, { network }: CountedNetwork) => hash(network, await account(ctx, bodyLimit));
      return limit({ name: 'rl:login', rate: rates.login, store: windows, key, delay });
    },
    account: () => limit({ name: 'rl:account', rate: rates.account, store: windows, key: network, delay }),
    token: () => limit({ name: 'rl:token', rate: rates.token, store: windows, key: network }),
  };

  /** A body that cannot be read names no account; it is refused when the route reads it, with the same error. */
  async function account(ctx: Context, bodyLimit: number): Promise<string> {
    const body = await readBody(ctx, bodyLimit).catch(() => ({}));
    return loginAccount(body);
  }

  return {
    everyRequest: limit({ name: 'rl:global', rate: rates.global, store: windows, key: network }),
    ofRoute: ({ rateLimit, bodyLimit }) => (rateLimit ? limits[rateLimit](bodyLimit) : undefined),
  };
}

interface LimitOptions {
  name: `rl:${string}`;
  rate: Rate;
  store: RateLimitStore;
  /** Identifies the requests of a network that are counted together. Never empty. */
  key: (ctx: Context, network: CountedNetwork) => string | Promise<string>;
  /** Before a refusal. */
  delay?: Delay;
}

/** Tells the state of the limit in `RateLimit-*`, and refuses with 429 and `Retry-After`; times are in seconds. */
function limit({ name, rate, store: windows, key, delay }: LimitOptions): Middleware {
  const count = ratelimit({
    driver: 'redis',
    db: driver(windows) as never,
    namespace: name,
    max: rate.max,
    duration: rate.windowMs,
    id: ctx => ctx.state.rateLimitKey,
    headers: { total: 'RateLimit-Limit', remaining: 'RateLimit-Remaining', reset: 'RateLimit-Reset' },
    errorMessage: 'refused', // replaced by the problem below
  });
  const refuse = async (ctx: Context): Promise<never> => {
    const { 'ratelimit-reset': reset } = ctx.response.headers;
    await delay?.(ctx);
    throw problem('rate_limited', { headers: { 'Retry-After': String(Math.max(1, Number(reset))) } });
  };
  /** True when the request exceeds the rate of a larger network, which the headers then describe. */
  const exceedsLarger = async (ctx: Context, networks: CountedNetwork[]): Promise<boolean> => {
    for (const network of networks) {
      const max = rate.max * network.factor;
      const { remaining, resetMs } = await windows.hit(`${name}:${await key(ctx, network)}`, { ...rate, max });
      if (remaining > 0) continue;
      setRateHeaders(ctx, max, resetMs);
      return true;
    }
    return false;
  };
  return async (ctx, next) => {
    const [smallest, ...larger] = countedNetworks(ctx.state.ipAddress);
    ctx.state.rateLimitKey = await key(ctx, smallest);
    await count(ctx, async () => {
      // Requests that the smallest network refuses are not counted for the larger ones: its neighbours do not pay for them.
      if (larger.length > 0 && (await exceedsLarger(ctx, larger))) await refuse(ctx);
      await next();
    });
    if (ctx.state.rateLimit) await refuse(ctx); // koa-ratelimit sets it instead of calling `next`
  };
}

function setRateHeaders(ctx: Context, max: number, resetMs: number): void {
  ctx.set({
    'RateLimit-Limit': String(max),
    'RateLimit-Remaining': '0',
    'RateLimit-Reset': String(Math.ceil(resetMs / 1000)),
  });
}

/** All that koa-ratelimit calls of its database. What it takes for a time of day is passed on as it is: our seconds. */
function driver(windows: RateLimitStore) {
  return {
    ratelimiter: async (
      key: string,
      _now: number,
      windowMs: number,
      max: number,
    ): Promise<[number, number, number]> => {
      const { remaining, resetMs } = await windows.hit(key, { max, windowMs });
      return [remaining, Math.ceil(resetMs / 1000), max];
    },
  };
}

/** Nothing of an e-mail address leaves the process, and nothing that is special in a key. */
function hash(...parts: string[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('base64url').slice(0, 32);
}
