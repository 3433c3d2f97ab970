import Koa, { type Context, type Middleware } from 'koa';
import compose from 'koa-compose';
import type { z } from 'zod';
import type { AuthServices } from './auth/auth-services.ts';
import { authenticate } from './auth/authenticate.ts';
import { authenticateClient } from './auth/authenticate-client.ts';
import { enforceScope } from './auth/enforce-scope.ts';
import { loginAccount } from './auth/login.ts';
import type { Config } from './config.ts';
import type { TenantDatabases } from './connections/tenant-databases.ts';
import { documentationPages } from './docs/pages.ts';
import { problem } from './errors.ts';
import { accessLog } from './http/access-log.ts';
import { clientAddresses } from './http/client-address.ts';
import { problemDetails } from './http/problem-details.ts';
import type { RateLimitStore } from './http/rate-limit/rate-limit-store.ts';
import { createRateLimits } from './http/rate-limit/rate-limits.ts';
import { readBody } from './http/read-body.ts';
import { readFields, readQuery } from './http/read-fields.ts';
import { requestId } from './http/request-id.ts';
import { createRouters, type Routers } from './http/routers.ts';
import { securityHeaders } from './http/security-headers.ts';
import { sendResponse } from './http/send-response.ts';
import { describeError } from './log.ts';
import type { Metrics } from './metrics.ts';
import type { ResponseCache } from './response-cache/response-cache.ts';
import { apiRoutes } from './routes.ts';
import { type Access, permissionMissing, requiredPermission, type TenantRoute } from './tenancy/define-route.ts';
import { fairScheduler } from './tenancy/fair-scheduler.ts';
import type { Caller } from './tenancy/request-context.ts';
import { requestToken, tenantRouter } from './tenancy/tenant-router.ts';
import { VerifiedTokens } from './tenancy/verified-tokens.ts';

export interface AppServices extends AuthServices {
  config: Pick<Config, 'trustedProxies' | 'publicUrl' | 'rateLimits'>;
  databases: TenantDatabases;
  responseCache: ResponseCache;
  metrics: Pick<Metrics, 'count'>;
  rateLimitStore: RateLimitStore;
  /** Aborted when the service is to stop. */
  stopping: AbortSignal;
}

/** The middleware stack, top to bottom. */
export function createApp(parts: AppServices): Koa {
  const { config, directory, rateLimitStore: windows, metrics, stopping, log } = parts;
  const routes = apiRoutes(parts);
  const limits = createRateLimits({ rates: config.rateLimits, store: windows, stopping, loginAccount });

  const verified = new VerifiedTokens(directory);
  // Gives each request a context of its own, whose entity manager is forked on the database of the resolved tenant.
  const resolveTenant = (anonymous: boolean) => tenantRouter({ ...parts, verifiedTokens: verified, anonymous });
  const user = compose([resolveTenant(false), authenticate({ ...parts, verifiedTokens: verified })]);
  const anonymous = resolveTenant(true);
  const identify = (access: Access): Middleware => {
    if (access === 'anonymous') return anonymous;
    if (access === 'optional')
      return (ctx, next) => (requestToken(ctx.req) === undefined ? anonymous : user)(ctx, next);
    return access === 'client' ? authenticateClient(parts) : user;
  };

  const turns = fairScheduler();
  const handle = (route: TenantRoute): Middleware => {
    const steps = [
      nameRoute(route),
      limits.ofRoute(route),
      identify(route.access),
      turns,
      requirePermission(route),
      respond(route),
    ];
    return compose(steps.filter(step => step !== undefined));
  };
  const routers = createRouters(routes.map(route => ({ ...route, handle: handle(route) })));
  const addressOf = clientAddresses(config.trustedProxies);

  const app = new Koa();
  // What `problemDetails` could not render, or stands above it.
  app.on('error', error => log.error({ event: 'unanswered', err: describeError(error) }, 'a request was not answered'));
  app.use(closeWhenStopping(stopping));
  app.use(requestId());
  app.use(accessLog(log, metrics.count));
  app.use(problemDetails(log));
  app.use(securityHeaders());
  app.use((ctx, next) => {
    requireTarget(ctx);
    ctx.state.ipAddress = addressOf(ctx.req);
    return next();
  });
  app.use(limits.everyRequest);
  app.use(routers.dispatch);
  app.use(documentationPages(routes, config.publicUrl));
  app.use(unknownRoute(routers, routes, user));
  return app;
}

/** Kept open after its answer, a connection would hold up the stop until its client or a time limit ends it. */
function closeWhenStopping(stopping: AbortSignal): Middleware {
  return async (ctx, next) => {
    await next();
    if (stopping.aborted) ctx.res.setHeader('Connection', 'close');
  };
}

/** An absolute URL may stand in a request line (RFC 9112 §3.2.2); one that is none has no path. */
function requireTarget(ctx: Context): void {
  try {
    void ctx.path;
  } catch {
    throw problem('invalid_request', { detail: 'The request target is not well-formed.' });
  }
}

function nameRoute(route: TenantRoute): Middleware {
  return (ctx, next) => {
    ctx.state.route = route.path;
    return next();
  };
}

function requirePermission(route: TenantRoute): Middleware | undefined {
  const permission = requiredPermission(route);
  if (!permission) return undefined;
  return (ctx, next) => {
    if (!ctx.state.caller.permissions.has(permission)) throw permissionMissing(permission);
    return next();
  };
}

/** Body → scope → fields → handler → answer. */
function respond(route: TenantRoute): Middleware {
  return async ctx => {
    const { context, caller } = ctx.state;
    const fields = route.body ? await readInput(ctx, route, route.body, caller) : {};
    const query = route.query ? readQuery(route.query, new URLSearchParams(ctx.querystring)) : {};
    const input = { body: fields as never, query: query as never, params: ctx.params };
    sendResponse(ctx, route, await route.handler(input, context));
  };
}

async function readInput(
  ctx: Context,
  route: TenantRoute,
  contract: z.ZodObject,
  caller: Caller | undefined,
): Promise<object> {
  const body = { ...(await readBody(ctx, route.bodyLimit)) };
  if (route.method === 'POST' && caller) enforceScope(body, caller);
  return readFields(contract, body);
}

const knownMethods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** A path or method that is not there is only told to those who could call what is: 403 and 401 come first. */
function unknownRoute(routers: Routers, routes: TenantRoute[], user: Middleware): Middleware {
  const anonymousPaths = new Set(
    routes.filter(route => ['anonymous', 'optional', 'client'].includes(route.access)).map(route => route.path),
  );
  return async ctx => {
    if (!knownMethods.has(ctx.method)) throw problem('not_implemented');
    const there = routers.ofPath(ctx.path);
    if (!there.some(({ path }) => anonymousPaths.has(path))) await user(ctx, async () => {});
    if (there.length === 0) throw problem('not_found');
    throw problem('method_not_allowed', { headers: { Allow: there.flatMap(({ methods }) => methods).join(', ') } });
  };
}
