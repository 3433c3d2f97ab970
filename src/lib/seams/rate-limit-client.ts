import type ratelimit from 'koa-ratelimit';

type Client = NonNullable<Parameters<typeof ratelimit>[0]>['db'];

/** Counts a call under a key. */
type Hit = (
  key: string,
  rate: { readonly max: number; readonly windowMs: number },
) => Promise<{ readonly remaining: number; readonly resetMs: number }>;

/**
 * Returns a Redis client for koa-ratelimit with the only method that it calls. koa-ratelimit
 * takes the second number for a time of day and sends it unchanged in `RateLimit-Reset`; so it
 * is the number of seconds until the reset.
 */
export function rateLimitClient(hit: Hit): Client {
  const client = {
    ratelimiter: async (
      key: string,
      _now: number,
      windowMs: number,
      max: number,
    ): Promise<[number, number, number]> => {
      const { remaining, resetMs } = await hit(key, { max, windowMs });
      return [remaining, Math.ceil(resetMs / 1000), max];
    },
  };
  return client as unknown as Client;
}
