import type { TenantRecord } from '../control/records.ts';
import { countedNetworks } from '../lib/http/request/client-address.ts';
import { ratePolicy, setRateHeaders } from '../lib/http/steps/rate-limit/rate-headers.ts';
import type { RateLimitStore } from '../lib/http/steps/rate-limit/rate-limit-store.ts';
import { hashKey, rejectionDelayMs } from '../lib/http/steps/rate-limit/rate-limits.ts';
import { createDelay } from '../lib/http/steps/rate-limit/rejection-delay.ts';
import type { Rate } from '../lib/http/steps/rate-limit/sliding-window.ts';
import { problem } from '../lib/problems.ts';
import type { HttpContext } from '../lib/request-state.ts';
import { KeyedQueue } from '../lib/runtime/keyed-queue.ts';

interface SlugLimitOptions {
  store: RateLimitStore;
  /** Different slugs without an active tenant, of one client. */
  rate: Rate;
  /** The signal that ends the delays of rejections. */
  draining: AbortSignal;
}

/** Looks a slug up for a request: undefined when no active tenant has it. */
export type FindBySlug = (
  ctx: HttpContext,
  slug: string,
  find: () => Promise<TenantRecord | undefined>,
) => Promise<TenantRecord | undefined>;

/**
 * Limits how many slugs without an active tenant a client may name, so that nobody reads from
 * the responses which companies are customers. Above the limit, every slug gets the same 429,
 * also that of a tenant; a guid, which nobody guesses, goes on.
 *
 * A slug that a client names again tells nothing more, and is not counted again: a program with
 * the slug of a suspended tenant does not use up the limit of those behind the same address.
 * The slugs of a network are looked up one after the other, so that many at once do not pass
 * the limit together; other processes may each let one more pass.
 * @throws {Problem} `rate_limited`
 */
export function limitSlugs({ store, rate, draining }: SlugLimitOptions): FindBySlug {
  const delay = createDelay(rejectionDelayMs, draining);
  const policy = ratePolicy('TenantNames', rate);
  const byNetwork = new KeyedQueue();

  /** @returns the tenant, or for how many milliseconds the client is refused */
  async function lookUp(
    address: string,
    slug: string,
    find: () => Promise<TenantRecord | undefined>,
  ): Promise<{ tenant: TenantRecord | undefined } | { resetMs: number }> {
    const networks = countedNetworks(address);
    const windows = networks.map(
      ({ network, factor }) =>
        [`rl:slugs:${network}`, { ...rate, max: rate.max * factor }] as const,
    );

    for (const [key, ofNetwork] of windows) {
      const { remaining, resetMs } = await store.peek(key, ofNetwork);
      if (remaining === 0) return { resetMs };
    }

    const tenant = await find();
    if (tenant?.status === 'active') return { tenant };

    const [{ network }] = networks;
    const named = await store.hit(`rl:slug:${hashKey(network, slug)}`, { ...rate, max: 1 });
    if (named.remaining > 0) {
      for (const [key, ofNetwork] of windows) await store.hit(key, ofNetwork);
    }
    return { tenant: undefined };
  }

  return async function findBySlug(ctx, slug, find) {
    const { ipAddress } = ctx.state;
    const [{ network }] = countedNetworks(ipAddress);
    const found = await byNetwork.run(network, () => lookUp(ipAddress, slug, find));
    if ('tenant' in found) return found.tenant;

    setRateHeaders(ctx, policy, found.resetMs);
    await delay(ctx);
    throw problem('rate_limited', {
      headers: { 'Retry-After': String(Math.max(1, Math.ceil(found.resetMs / 1_000))) },
    });
  };
}
