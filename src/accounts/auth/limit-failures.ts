import type { Logger } from 'pino';
import { type ControlDatabase, queryControl } from '../../control/database.ts';
import type { SecretBox } from '../../control/secret-box.ts';
import { clientNetwork } from '../../lib/http/request/client-address.ts';
import { readBody } from '../../lib/http/request/read-body.ts';
import { bodyLimits } from '../../lib/http/route.ts';
import { failuresPrefix } from '../../lib/http/steps/rate-limit/process-windows.ts';
import { ratePolicy, setRateHeaders } from '../../lib/http/steps/rate-limit/rate-headers.ts';
import type { RateLimitStore } from '../../lib/http/steps/rate-limit/rate-limit-store.ts';
import { hashKey, rejectionDelayMs } from '../../lib/http/steps/rate-limit/rate-limits.ts';
import { createDelay } from '../../lib/http/steps/rate-limit/rejection-delay.ts';
import type { Rate } from '../../lib/http/steps/rate-limit/sliding-window.ts';
import { hasCode, problem } from '../../lib/problems.ts';
import type { HttpContext, HttpMiddleware } from '../../lib/request-state.ts';
import { loginAccount } from './login.ts';
import { knownNetworkAge } from './login-networks.ts';

interface LimitFailuresOptions {
  control: ControlDatabase;
  log: Logger;
  secrets: SecretBox;
  store: RateLimitStore;
  rate: Rate;
  /** The signal that ends the delays of rejections. */
  draining: AbortSignal;
}

const isKnownNetwork = `
  select 1 from login_networks n join users u on u.id = n.user_id
   where u.tenant_id = $1 and u.email = $2 and n.network = $3 and n.last_login_at > now() - ${knownNetworkAge}`;

/** Limits the failed comparisons of a password with that of an account. */
export interface FailureLimit {
  /** The limit of the route of logins. Runs after the tenant is resolved. */
  readonly ofLogin: HttpMiddleware;
  /**
   * Runs a request of a caller that fails with `invalid_credentials` if it has not the password
   * of the caller's account.
   * @throws {Problem} `rate_limited`, when the password must not be compared
   */
  ofAccount(ctx: HttpContext, email: string, next: () => Promise<void>): Promise<void>;
  /**
   * Runs the comparison of a password of an account of the request's tenant.
   * @throws {Problem} `rate_limited`, when it must not be made
   */
  compare(ctx: HttpContext, email: string, comparison: () => Promise<boolean>): Promise<boolean>;
}

/**
 * Limits the failed logins to one account, from all clients together: the limit of logins
 * counts each client by itself, and an attacker with thousands of addresses could go on
 * guessing. Above the limit, only networks that have logged in to the account within 30 days,
 * or used a token of a mail to it, may try, so that its owner is not locked out.
 *
 * An account is a tenant and an e-mail address, whether or not a user has it, so that the limit
 * does not reveal which accounts exist. Concurrent logins may exceed the limit by their number.
 */
export function limitFailures({
  control,
  log,
  secrets,
  store,
  rate,
  draining,
}: LimitFailuresOptions): FailureLimit {
  const delay = createDelay(rejectionDelayMs, draining);
  const policy = ratePolicy('LoginFailures', rate);

  const isKnown = async ({ state }: HttpContext, email: string): Promise<boolean> => {
    const values = [state.context.tenant.id, email, clientNetwork(state.ipAddress)];
    return (await queryControl(control, 'known_network', isKnownNetwork, values)).length > 0;
  };

  /** Runs what fails with `invalid_credentials` if the password is not that of the account. */
  async function limited(
    ctx: HttpContext,
    email: string,
    attempt: () => Promise<void>,
  ): Promise<void> {
    const { traceId, context, ipAddress } = ctx.state;
    const { tenant } = context;
    const key = `${failuresPrefix}${hashKey(tenant.guid, email)}`;
    // An account has the same hash in every line, and its address cannot be found without the
    // master key.
    const account = secrets
      .mac('login_account', tenant.guid, email)
      .toString('base64url')
      .slice(0, 22);
    const line = { traceId, tenant: tenant.guid, account, ip: ipAddress };

    const { remaining, resetMs } = await store.peek(key, rate);
    if (remaining === 0 && !(await isKnown(ctx, email))) {
      log.info(
        { event: 'login_refused', ...line },
        'refused a login: too many have failed for this account',
      );
      setRateHeaders(ctx, policy, resetMs);
      await delay(ctx);
      throw problem('rate_limited', {
        headers: { 'Retry-After': String(Math.ceil(resetMs / 1_000)) },
      });
    }

    try {
      await attempt();
    } catch (error) {
      if (hasCode(error, 'invalid_credentials')) {
        log.info({ event: 'login_failed', ...line }, 'a login failed');
        await store.hit(key, rate);
      }
      throw error;
    }
  }

  return {
    async ofLogin(ctx, next) {
      const email = loginAccount(await readBody(ctx, bodyLimits.auth));
      if (email === '') return next(); // refused later, as an invalid field

      await limited(ctx, email, next);
    },
    ofAccount: limited,
    async compare(ctx, email, comparison) {
      try {
        await limited(ctx, email, async () => {
          if (!(await comparison())) throw problem('invalid_credentials');
        });
        return true;
      } catch (error) {
        if (hasCode(error, 'invalid_credentials')) return false;
        throw error;
      }
    },
  };
}
