import type { z } from 'zod';
import type { Permission } from '../control/permissions.ts';
import type { Sent } from '../lib/http/response/sent.ts';
import { bodyLimits, type Route, type RouteInput } from '../lib/http/route.ts';
import { type Problem, problem } from '../lib/problems.ts';
import type { RequestContext } from './request-context.ts';

/**
 * The callers who may use a route:
 *   - `anonymous`: every request that names a tenant;
 *   - `optional`: the same, but a token is verified if there is one;
 *   - `client`: an API client with its secret;
 *   - `user`: every user;
 *   - a permission: the users who have it.
 * There is no default, and a route cannot require several permissions.
 */
export type Access = 'anonymous' | 'optional' | 'client' | 'user' | Permission;

/** Returns a 403 that names the missing permission, as in RFC 6750 §3.1. */
export function permissionMissing(permission: Permission): Problem {
  const challenge = `Bearer error="insufficient_scope", scope="${permission}"`;
  return problem('forbidden', { headers: { 'WWW-Authenticate': challenge } });
}

/** The permission that a route requires; undefined if it requires none. */
export function requiredPermission({
  access,
}: Pick<TenantRoute, 'access'>): Permission | undefined {
  return access === 'anonymous' || access === 'optional' || access === 'client' || access === 'user'
    ? undefined
    : access;
}

export type TenantRoute = Route<Access, RequestContext>;

/** The fields of a route that have a default. */
type Defaulted = 'bodyLimit' | 'status' | 'cache' | 'takesPart';

/**
 * The result of a handler: a value of the response's type, or a response that is sent as it is.
 */
type Result<Value> = Promise<Value extends undefined ? void : Value | Sent | undefined>;

/** A route whose handler has the types of its contracts. */
interface RouteOptions<
  Body extends z.ZodObject,
  Output extends z.ZodType,
  Query extends z.ZodObject,
> extends Omit<
      TenantRoute,
      Defaulted | 'query' | 'body' | 'example' | 'response' | 'location' | 'handler'
    >,
    Partial<Pick<TenantRoute, Defaulted>> {
  query?: Query | undefined;
  body?: Body | undefined;
  example?: z.input<Body>;
  response?: Output;
  location?: (result: z.input<Output>) => string;
  handler: (
    input: RouteInput<z.output<Body>, z.output<Query>>,
    context: RequestContext,
  ) => Result<z.input<Output>>;
}

/**
 * Defines an endpoint of the API: the handler receives only the fields that `body` and `query`
 * accept, and the response contains only the fields that `response` names.
 */
export function defineRoute<
  Body extends z.ZodObject = z.ZodObject<Record<never, never>>,
  Output extends z.ZodType = z.ZodUndefined,
  Query extends z.ZodObject = z.ZodObject<Record<never, never>>,
>(options: RouteOptions<Body, Output, Query>): TenantRoute {
  return {
    status: options.response ? 200 : 204,
    cache: 'no-store',
    bodyLimit: bodyLimits.resource,
    takesPart: options.method === 'PATCH',
    ...options,
  };
}
