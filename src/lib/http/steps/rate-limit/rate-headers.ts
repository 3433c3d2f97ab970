import type { ServerResponse } from 'node:http';
import type { HttpContext } from '../../../request-state.ts';
import type { Rate } from './sliding-window.ts';

/** The limits of the requests of a client. */
export type ClientPolicy =
  | 'Global'
  | 'Pages'
  | 'Login'
  | 'AccountWrite'
  | 'GenerateToken'
  | 'ProgramToken';

/**
 * The name of a limit in `RateLimit` and `RateLimit-Policy`; `…Network` is that of a larger
 * network of IPv6.
 */
type PolicyName = ClientPolicy | `${ClientPolicy}Network` | 'LoginFailures' | 'TenantNames';

/** The description of a limit for clients. */
export interface RatePolicy {
  readonly name: PolicyName;
  readonly rate: Rate;
  /** The item of the limit in `RateLimit-Policy`. */
  readonly item: string;
}

export function ratePolicy(name: PolicyName, rate: Rate): RatePolicy {
  return { name, rate, item: `"${name}";q=${rate.max};w=${Math.ceil(rate.windowMs / 1_000)}` };
}

/**
 * Describes the limit that rejects a request.
 * @param resetMs until the limit admits requests again
 */
export function setRateHeaders({ res }: HttpContext, policy: RatePolicy, resetMs: number): void {
  res.setHeader('RateLimit-Limit', String(policy.rate.max));
  res.setHeader('RateLimit-Remaining', '0');
  res.setHeader('RateLimit-Reset', String(Math.ceil(resetMs / 1_000)));
  addRateFields(res, policy);
}

/**
 * Removes the three headers of one limit from the response of a request that cannot succeed:
 * some clients wait for `RateLimit-Reset`, and send the request again.
 */
export function removeRateHeaders(ctx: HttpContext): void {
  for (const name of ['RateLimit-Limit', 'RateLimit-Remaining', 'RateLimit-Reset']) {
    ctx.remove(name);
  }
}

/**
 * Adds to `RateLimit` and `RateLimit-Policy` the limit that `RateLimit-Limit`,
 * `RateLimit-Remaining` and `RateLimit-Reset` describe. These three have the state of one
 * limit, and the two of each limit that has counted the request, in the syntax of structured
 * fields (draft-ietf-httpapi-ratelimit-headers-10, RFC 9651).
 */
export function addRateFields(res: ServerResponse, { name, item }: RatePolicy): void {
  const state = `"${name}";r=${res.getHeader('RateLimit-Remaining')};t=${res.getHeader('RateLimit-Reset')}`;
  const policies = res.getHeader('RateLimit-Policy');

  if (policies === undefined) {
    res.setHeader('RateLimit-Policy', item);
    res.setHeader('RateLimit', state);
  } else {
    res.setHeader('RateLimit-Policy', `${policies}, ${item}`);
    res.setHeader('RateLimit', `${res.getHeader('RateLimit')}, ${state}`);
  }
}
