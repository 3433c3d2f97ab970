import { clientNetwork } from '../http/client-address.ts';
import type { RateLimitStore } from '../http/rate-limit/rate-limit-store.ts';
import { hashKey } from '../http/rate-limit/rate-limits.ts';
import type { Rate } from '../http/rate-limit/sliding-window.ts';

/** An account, whether or not a user has it. */
interface Account {
  readonly tenantGuid: string;
  readonly email: string;
}

/** Counts the mails to an account. Each function resolves to false when the account must not receive a further mail. */
export interface MailLimits {
  /** Counts a mail for a password reset. An account receives at most `rate.max` of them, from all clients together. */
  allowReset(account: Account): Promise<boolean>;
  /**
   * Counts a mail of a registration: at most `rate.max` that one client requests, and `networkFactor` times as many of
   * all clients together. So a client who registers a foreign address cannot use up the mails of its owner.
   */
  allowRegistration(account: Account, clientAddress: string): Promise<boolean>;
}

const networkFactor = 4;
/** Prefix length of an IPv6 client's network: a subscriber may have a whole /48 (RFC 6177). */
const networkBits = 48;

/** @param store counts under `rl:mail:…`, without e-mail addresses */
export function createMailLimits(store: Pick<RateLimitStore, 'hit'>, rate: Rate): MailLimits {
  const allow = async (limit: Rate, ...parts: string[]): Promise<boolean> =>
    (await store.hit(`rl:mail:${hashKey(...parts)}`, limit)).remaining > 0;
  return {
    allowReset: ({ tenantGuid, email }) => allow(rate, 'reset', tenantGuid, email),
    // A mail that the limit of its client rejects does not count for all clients together.
    allowRegistration: async ({ tenantGuid, email }, clientAddress) =>
      (await allow(rate, 'register', tenantGuid, email, clientNetwork(clientAddress, networkBits))) &&
      (await allow({ ...rate, max: rate.max * networkFactor }, 'register', tenantGuid, email)),
  };
}
