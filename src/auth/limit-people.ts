import { clientNetwork } from '../http/client-address.ts';
import { delayOf, type RateLimitStore } from '../http/rate-limit/rate-limit-store.ts';
import { hashKey } from '../http/rate-limit/rate-limits.ts';
import type { Rate } from '../http/rate-limit/sliding-window.ts';

/** An administrator who changes users or roles. */
interface Administrator {
  readonly tenantGuid: string;
  readonly userId: number;
}

/** Counts the changes of users and roles, each of which adds rows to the control database. */
export type PeopleLimits = ReturnType<typeof createPeopleLimits>;

/** One administrator cannot use up the changes of a tenant, so that another one can still disable them. */
const tenantFactor = 4;

/** @param rate of one administrator; all of a tenant together have `tenantFactor` times as many changes */
export function createPeopleLimits(store: Pick<RateLimitStore, 'hit' | 'peek'>, rate: Rate) {
  const windows = ({ tenantGuid, userId }: Administrator) =>
    [
      [`rl:people:${hashKey(tenantGuid, String(userId))}`, rate],
      [`rl:people:${hashKey(tenantGuid)}`, { ...rate, max: rate.max * tenantFactor }],
    ] as const;
  return {
    /** Returns after how many milliseconds the administrator may make a further change; 0 = now. */
    changeDelay: (administrator: Administrator) => delayOf(store, windows(administrator)),
    countChange: async (administrator: Administrator): Promise<void> => {
      await Promise.all(windows(administrator).map(([key, limit]) => store.hit(key, limit)));
    },
  };
}

/** An account, whether or not a user has it. */
interface Account {
  readonly tenantGuid: string;
  readonly email: string;
}

/** Counts the mails to an account. Each function resolves to false when the account must not receive a further mail. */
export type MailLimits = ReturnType<typeof createMailLimits>;

const networkFactor = 4;
/** A tenant that starts to use the service invites its people in one go: 120 in 15 minutes by default. */
const mailTenantFactor = 40;
/** Prefix length of an IPv6 client's network: a subscriber may have a whole /48 (RFC 6177). */
const networkBits = 48;

const keyOf = (...parts: string[]): `rl:${string}` => `rl:mail:${hashKey(...parts)}`;

/** @param store counts under `rl:mail:…`, without e-mail addresses */
export function createMailLimits(store: Pick<RateLimitStore, 'hit' | 'peek'>, rate: Rate) {
  const allow = async (limit: Rate, ...parts: string[]): Promise<boolean> =>
    (await store.hit(keyOf(...parts), limit)).remaining > 0;
  const ofTenant = { ...rate, max: rate.max * mailTenantFactor };
  return {
    /**
     * Counts a mail for a password reset. An account receives at most `rate.max` of them, from all clients together.
     */
    allowReset: ({ tenantGuid, email }: Account) => allow(rate, 'reset', tenantGuid, email),
    /**
     * Counts a mail of a registration: at most `rate.max` that one client requests, and `networkFactor` times as many
     * of all clients together. So a client who registers a foreign address cannot use up the mails of its owner. A mail
     * that the limit of its client rejects does not count for all clients together.
     */
    allowRegistration: async ({ tenantGuid, email }: Account, clientAddress: string) =>
      (await allow(rate, 'register', tenantGuid, email, clientNetwork(clientAddress, networkBits))) &&
      (await allow({ ...rate, max: rate.max * networkFactor }, 'register', tenantGuid, email)),
    /**
     * Returns after how many milliseconds the account may receive a further invitation; 0 = now. At most `rate.max` to
     * an account, and `mailTenantFactor` times as many of one tenant.
     */
    invitationDelay: ({ tenantGuid, email }: Account) =>
      delayOf(store, [
        [keyOf('invite', tenantGuid, email), rate],
        [keyOf('invite', tenantGuid), ofTenant],
      ]),
    /** Counts an invitation. */
    allowInvitation: async ({ tenantGuid, email }: Account) =>
      (await allow(rate, 'invite', tenantGuid, email)) && (await allow(ofTenant, 'invite', tenantGuid)),
  };
}
