import Koa from 'koa';
import compose from 'koa-compose';
import type { Logger } from 'pino';
import { accountPages } from '../accounts/account-pages/account-pages.ts';
import { authenticate, authenticateClient } from '../accounts/auth/authenticate.ts';
import { limitFailures } from '../accounts/auth/limit-failures.ts';
import { loginSubject } from '../accounts/auth/login.ts';
import { tokenEndpoint } from '../accounts/auth/token-endpoint.ts';
import { logoutEndpoint } from '../accounts/providers/logout-endpoint.ts';
import type { Config } from '../lib/config/config.ts';
import { clientAddresses } from '../lib/http/request/client-address.ts';
import { ProxyNotices } from '../lib/http/request/proxy-notices.ts';
import { publicAddresses } from '../lib/http/request/public-address.ts';
import { requireTarget } from '../lib/http/request/require-target.ts';
import type { UnsentResponses } from '../lib/http/response/unsent-responses.ts';
import { createRouters } from '../lib/http/server/routers.ts';
import { accessLog, type RequestOutcome } from '../lib/http/steps/access-log.ts';
import { crossOrigin } from '../lib/http/steps/cors.ts';
import { limitDuration } from '../lib/http/steps/limit-duration.ts';
import { problemDetails } from '../lib/http/steps/problem-details.ts';
import type { RateLimitStore } from '../lib/http/steps/rate-limit/rate-limit-store.ts';
import { createRateLimits } from '../lib/http/steps/rate-limit/rate-limits.ts';
import { requestId } from '../lib/http/steps/request-id.ts';
import { securityHeaders } from '../lib/http/steps/security-headers.ts';
import { describeError } from '../lib/log/describe-error.ts';
import type { HttpMiddleware } from '../lib/request-state.ts';
import type { Tracing } from '../lib/tracing/start-tracing.ts';
import { ignoreForeignTraces } from '../lib/tracing/trace-requests.ts';
import type { TenantDatabases } from '../tenancy/connections/tenant-databases.ts';
import type { Access } from '../tenancy/define-route.ts';
import { fairScheduler } from '../tenancy/fair-scheduler.ts';
import { limitSlugs } from '../tenancy/limit-slugs.ts';
import type { ResponseCache } from '../tenancy/response-cache/response-cache.ts';
import { requestToken, tenantRouter } from '../tenancy/tenant-router.ts';
import { VerifiedTokens } from '../tenancy/verified-tokens.ts';
import { documentationPages } from './pages/pages.ts';
import { nameRoute, requirePermission, respond, unknownRoute } from './route-steps.ts';
import { apiRoutes, type RouteServices } from './routes.ts';

export interface AppServices extends RouteServices {
  config: Pick<
    Config,
    'trustedProxies' | 'publicUrl' | 'continuesTraces' | 'docs' | 'rateLimits' | 'corsOrigins'
  >;
  databases: TenantDatabases;
  responseCache: ResponseCache;
  /** Counts a request that has ended. */
  countRequest: (outcome: RequestOutcome) => void;
  rateLimitStore: RateLimitStore;
  unsentResponses: UnsentResponses;
  /** Undefined when requests are not traced. */
  tracing?: Tracing | undefined;
  /**
   * Maximum time until the response of a request begins, in milliseconds. The time to receive
   * the body is not counted.
   */
  deadlineMs: number;
  /**
   * Aborted when the service accepts no more connections, after the delay of the stop: from
   * then on, rejections are not delayed.
   */
  draining: AbortSignal;
}

/**
 * Builds the middleware stack, top to bottom: first the middlewares that every request passes,
 * then those of each route.
 */
export function createApp(services: AppServices): Koa {
  const { config, directory, rateLimitStore, countRequest, tracing, draining, log } = services;
  const routes = apiRoutes(services);
  const cors = crossOrigin(config.corsOrigins, log);
  const documentation = documentationPages(routes, config.publicUrl, config.docs);
  const limits = createRateLimits({
    rates: config.rateLimits,
    store: rateLimitStore,
    draining,
    isPage: ctx => documentation.hasPage(ctx) || cors.isListedPreflight(ctx),
    loginAccount: loginSubject,
  });
  const verifiedTokens = new VerifiedTokens(directory);
  // Gives each request a context of its own, whose entity manager reaches the database of the
  // resolved tenant.
  const findBySlug = limitSlugs({
    store: rateLimitStore,
    rate: config.rateLimits.account,
    draining,
  });
  const resolveTenant = (anonymous: boolean) =>
    tenantRouter({ ...services, verifiedTokens, findBySlug, anonymous });
  const identify = {
    anonymous: resolveTenant(true),
    user: compose([resolveTenant(false), authenticate({ ...services, verifiedTokens })]),
    client: authenticateClient(services),
  };
  const rate = config.rateLimits.failures;
  const failures = limitFailures({ ...services, store: rateLimitStore, rate });
  /** Limits the comparisons of a caller's own password as logins to the account of the caller. */
  const limitOwnPassword: HttpMiddleware = async (ctx, next) => {
    const email = (await directory.user(ctx.state.context.caller.userId))?.email ?? '';
    await limits.ofPassword(ctx, email, () => failures.ofAccount(ctx, email, next));
  };
  const scheduleFairly = fairScheduler();
  const responding = {
    unsentResponses: services.unsentResponses,
    addressOf: publicAddresses(config.publicUrl),
  };
  const routers = createRouters(
    routes.map(route => ({
      ...route,
      handle: composeSteps([
        nameRoute(route),
        ...(route.rateLimit === 'login' && route.access === 'user'
          ? [identify.user, limitOwnPassword]
          : [
              limits.ofRoute(route),
              identifyFor(route.access, identify),
              route.rateLimit === 'login' ? failures.ofLogin : undefined,
            ]),
        scheduleFairly,
        requirePermission(route),
        respond(route, responding),
      ]),
    })),
  );

  const app = new Koa();
  // Errors that `problemDetails` could not render, or that were thrown by a middleware above
  // it.
  app.on('error', error =>
    log.error({ event: 'unanswered', err: describeError(error) }, 'a request got no response'),
  );
  if (!config.continuesTraces) app.use(ignoreForeignTraces());
  app.use(requestId());
  if (tracing) app.use(tracing.requests(config.publicUrl));
  app.use(accessLog(log, countRequest));
  app.use(problemDetails(log));
  app.use(limitDuration(services.deadlineMs));
  app.use(securityHeaders());
  if (cors.headers) app.use(cors.headers);
  app.use(readAddresses(config.trustedProxies, log));
  app.use(limits.everyRequest);
  app.use(cors.preflights);
  app.use(tokenEndpoint({ ...services, limit: limits.ofProgramToken }));
  app.use(logoutEndpoint(services));
  app.use(routers.dispatch);
  app.use(
    accountPages({
      ...services,
      limit: limits.ofAccounts,
      async comparePassword(ctx, email, comparison) {
        let isSame = false;
        await limits.ofPassword(ctx, email, async () => {
          isSame = await failures.compare(ctx, email, comparison);
        });
        return isSame;
      },
      hasExplorer: config.docs !== 'off',
    }),
  );
  app.use(documentation.serve);
  app.use(unknownRoute(routers, routes, identify.user));
  return app;
}

function composeSteps(steps: (HttpMiddleware | undefined)[]): HttpMiddleware {
  return compose(steps.filter(step => step !== undefined));
}

/**
 * The middlewares that resolve the tenant and, where the route asks for one, authenticate the
 * caller.
 */
function identifyFor(
  access: Access,
  { anonymous, user, client }: Record<'anonymous' | 'user' | 'client', HttpMiddleware>,
): HttpMiddleware {
  if (access === 'anonymous') return anonymous;
  if (access === 'client') return client;
  if (access !== 'optional') return user;

  return function identifyIfAsked(ctx, next) {
    const identify = requestToken(ctx.req) === undefined ? anonymous : user;

    return identify(ctx, next);
  };
}

function readAddresses(trustedProxies: Config['trustedProxies'], log: Logger): HttpMiddleware {
  const addressOf = clientAddresses(trustedProxies, new ProxyNotices(log, trustedProxies.header));
  return function readAddress(ctx, next) {
    ctx.state.ipAddress = addressOf(ctx.req);
    requireTarget(ctx);
    return next();
  };
}
