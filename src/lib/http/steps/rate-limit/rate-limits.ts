import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import ratelimit from 'koa-ratelimit';
import { problem } from '../../../problems.ts';
import type { HttpContext, HttpMiddleware } from '../../../request-state.ts';
import { rateLimitClient } from '../../../seams/rate-limit-client.ts';
import { type CountedNetwork, countedNetworks } from '../../request/client-address.ts';
import { readBody } from '../../request/read-body.ts';
import type { Route, RouteLimit } from '../../route.ts';
import { allowsLeases } from './call-leases.ts';
import { addRateFields, type ClientPolicy, ratePolicy, setRateHeaders } from './rate-headers.ts';
import type { RateLimitStore } from './rate-limit-store.ts';
import { createDelay, type Delay } from './rejection-delay.ts';
import type { Rate } from './sliding-window.ts';

declare module '../../../request-state.ts' {
  interface RequestState {
    /** The key of the limit that is just being counted. */
    rateLimitKey: string;
    /** Set by koa-ratelimit for a request that it rejects. */
    rateLimit: object | undefined;
  }
}

type Rates = Readonly<Record<'global' | RouteLimit, Rate>>;

export interface RateLimits {
  /**
   * Limits all requests of a client, before any work is done for a request: those of the API,
   * and apart those of `isPage`. Requires `ctx.state.ipAddress`.
   */
  readonly everyRequest: HttpMiddleware;
  /**
   * Limits the requests of account pages by the limit of the account routes, and counts them
   * together.
   */
  readonly ofAccounts: HttpMiddleware;
  /**
   * Limits the comparisons of passwords with that of an account outside of the route of logins,
   * by the limit of that route, and counts them together.
   * @param account in canonical form
   */
  ofPassword(ctx: HttpContext, account: string, next: () => Promise<void>): Promise<void>;
  /**
   * Limits the requests of a client for tokens of one program.
   * @param program the name that the request gives it
   */
  ofProgramToken(ctx: HttpContext, program: string, next: () => Promise<void>): Promise<void>;
  /**
   * Limits the requests to a route, before its tenant is resolved; undefined when the route has
   * no own limit.
   */
  ofRoute(route: Pick<Route, 'rateLimit' | 'bodyLimit'>): HttpMiddleware | undefined;
}

interface RateLimitOptions {
  rates: Rates;
  store: RateLimitStore;
  /** The signal that ends the delays of rejections. */
  draining: AbortSignal;
  /**
   * True for a request that costs next to nothing, and of which a page makes many: for a page of
   * the service, and for a preflight.
   */
  isPage: (ctx: HttpContext) => boolean;
  /** Returns the account or the challenge that a login body names; '' when it names none. */
  loginAccount: (body: object) => string;
}

/** The rate at which a client may ask for tokens of one program, which are valid for 15 min. */
const programTokenRate: Rate = { max: 60, windowMs: 60_000 };

/** The number of requests for pages that a client may send for each one of the API. */
const pagesForEach = 10;

/** Delay of the rejection of a login or a change of an account, in milliseconds. */
export const rejectionDelayMs = 2_000;

/**
 * The rejection with this number closes its connection, so that later requests on it are
 * neither parsed nor counted.
 */
const maxRejections = 10;
/** The number of rejections on each connection. */
const rejections = new WeakMap<Socket, number>();

/**
 * Creates the limits. Each limit has counters of its own, which do not count the calls that
 * they reject.
 */
export function createRateLimits({
  rates,
  store,
  draining,
  isPage,
  loginAccount,
}: RateLimitOptions): RateLimits {
  const delay = createDelay(rejectionDelayMs, draining);
  const networkKey = (_ctx: HttpContext, { network }: CountedNetwork): string => network;
  const limits: Record<RouteLimit, (bodyLimit: number) => HttpMiddleware> = {
    login: bodyLimit => limitLogins(ctx => accountOf(ctx, bodyLimit)),
    account: () =>
      limit({
        name: 'rl:account',
        policy: 'AccountWrite',
        rate: rates.account,
        hit: store.hit,
        key: networkKey,
        delay,
      }),
    token: () =>
      limit({
        name: 'rl:token',
        policy: 'GenerateToken',
        rate: rates.token,
        hit: store.hit,
        key: networkKey,
      }),
  };

  function limitLogins(accountOf: (ctx: HttpContext) => string | Promise<string>): HttpMiddleware {
    const key = async (ctx: HttpContext, { network }: CountedNetwork) =>
      hashKey(network, await accountOf(ctx));
    return limit({
      name: 'rl:login',
      policy: 'Login',
      rate: rates.login,
      hit: store.hit,
      key,
      delay,
    });
  }

  /**
   * An unreadable body names no account. It is rejected later with the same error, when the
   * route reads it.
   */
  async function accountOf(ctx: HttpContext, bodyLimit: number): Promise<string> {
    const body = await readBody(ctx, bodyLimit).catch(() => ({}));
    return loginAccount(body);
  }

  const ofApi = limit({
    name: 'rl:global',
    policy: 'Global',
    rate: rates.global,
    // The contract's rate is too low for leases: it is counted exactly, for all networks.
    hit: allowsLeases(rates.global) ? store.hitAhead : store.hit,
    key: networkKey,
  });
  const ofPages = limit({
    name: 'rl:pages',
    policy: 'Pages',
    rate: { ...rates.global, max: rates.global.max * pagesForEach },
    hit: store.hit,
    key: networkKey,
  });

  return {
    ofAccounts: limits.account(0),
    ofPassword: (ctx, account, next) => limitLogins(() => account)(ctx, next),
    ofProgramToken: (ctx, program, next) =>
      limit({
        name: 'rl:program_token',
        policy: 'ProgramToken',
        rate: programTokenRate,
        hit: store.hit,
        key: (_ctx, { network }) => hashKey(network, program),
      })(ctx, next),
    everyRequest: (ctx, next) => (isPage(ctx) ? ofPages(ctx, next) : ofApi(ctx, next)),
    ofRoute: ({ rateLimit, bodyLimit }) => (rateLimit ? limits[rateLimit](bodyLimit) : undefined),
  };
}

interface LimitOptions {
  /** The beginning of the keys of the limit's counters. */
  name: `rl:${string}`;
  /** The name of the limit for clients. */
  policy: ClientPolicy;
  rate: Rate;
  /** Counts a call. */
  hit: RateLimitStore['hit'];
  /** Returns the key under which requests from a network are counted together. Never empty. */
  key: (ctx: HttpContext, network: CountedNetwork) => string | Promise<string>;
  /** Delays each rejection. */
  delay?: Delay;
}

/**
 * Sends the state of the limit in `RateLimit` and `RateLimit-*`, and rejects with 429 and
 * `Retry-After`. Times are in seconds.
 */
function limit({ name, policy, rate, hit, key, delay }: LimitOptions): HttpMiddleware {
  const described = ratePolicy(policy, rate);

  const count = ratelimit({
    driver: 'redis',
    db: rateLimitClient(hit),
    namespace: name,
    max: rate.max,
    duration: rate.windowMs,
    id: ctx => ctx.state.rateLimitKey,
    headers: {
      total: 'RateLimit-Limit',
      remaining: 'RateLimit-Remaining',
      reset: 'RateLimit-Reset',
    },
    errorMessage: 'rejected', // replaced by the problem below
  });

  const reject = async (ctx: HttpContext): Promise<never> => {
    const { 'ratelimit-reset': reset } = ctx.response.headers;
    await delay?.(ctx);

    const { socket } = ctx.req;
    const count = (rejections.get(socket) ?? 0) + 1;
    rejections.set(socket, count);
    const closing = count < maxRejections ? undefined : { Connection: 'close' };

    throw problem('rate_limited', {
      headers: { 'Retry-After': String(Math.max(1, Number(reset))), ...closing },
    });
  };

  /**
   * True when the request exceeds the rate of a larger network, which the headers then
   * describe.
   */
  const exceedsLarger = async (ctx: HttpContext, networks: CountedNetwork[]): Promise<boolean> => {
    for (const network of networks) {
      const max = rate.max * network.factor;
      const { remaining, resetMs } = await hit(`${name}:${await key(ctx, network)}`, {
        ...rate,
        max,
      });
      if (remaining > 0) continue;

      setRateHeaders(ctx, ratePolicy(`${policy}Network`, { ...rate, max }), resetMs);
      return true;
    }
    return false;
  };

  return async function limitRate(ctx, next) {
    const [smallest, ...larger] = countedNetworks(ctx.state.ipAddress);
    ctx.state.rateLimitKey = await key(ctx, smallest);
    const { trace } = ctx.state;
    const startedAt = trace ? performance.now() : 0;

    await count(ctx, async () => {
      addRateFields(ctx.res, described);
      // A request that the smallest network rejects does not count for the larger ones, which
      // other clients share.
      if (larger.length > 0 && (await exceedsLarger(ctx, larger))) await reject(ctx);
      trace?.addStep('rate limit', startedAt, performance.now());
      await next();
    });

    // koa-ratelimit sets `rateLimit` only when it does not call `next`.
    if (ctx.state.rateLimit) {
      addRateFields(ctx.res, described);
      await reject(ctx);
    }
  };
}

/**
 * Hashes the parts of a key, so that no e-mail address leaves the process and no character is
 * special to Redis.
 */
export function hashKey(...parts: string[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('base64url').slice(0, 32);
}
