import type { z } from 'zod';
import type { Permission } from '../control/permissions.ts';
import { type Problem, problem } from '../errors.ts';
import { bodyLimits, type Route, type RouteInput } from '../http/route.ts';
import type { RequestContext } from './request-context.ts';

/**
 * Who may call a route: anyone who names a tenant; the same, but a token is looked at when there is one; an API client
 * with its secret; any user; or the users with one permission. There is no default, and no way to ask for several.
 */
export type Access = 'anonymous' | 'optional' | 'client' | 'user' | Permission;

/** 403 with the permission that is missing, as in RFC 6750 §3.1. */
export function permissionMissing(permission: Permission): Problem {
  const challenge = `Bearer error="insufficient_scope", scope="${permission}"`;
  return problem('forbidden', { headers: { 'WWW-Authenticate': challenge } });
}

/** The permission that a route asks for; undefined when it asks for none. */
export function requiredPermission({ access }: Pick<TenantRoute, 'access'>): Permission | undefined {
  return access === 'anonymous' || access === 'optional' || access === 'client' || access === 'user'
    ? undefined
    : access;
}

export type TenantRoute = Route<Access, RequestContext>;

interface RouteOptions<Body extends z.ZodObject, Answer extends z.ZodType, Query extends z.ZodObject> {
  method: Route['method'];
  path: string;
  access: Access;
  tag: string;
  summary: string;
  description?: string | undefined;
  query?: Query | undefined;
  body?: Body;
  example?: z.input<Body>;
  bodyLimit?: number;
  rateLimit?: Route['rateLimit'];
  response?: Answer;
  status?: Route['status'];
  mayBeEmpty?: boolean;
  cache?: Route['cache'];
  location?: (answer: z.input<Answer>) => string;
  handler: (
    input: RouteInput<z.output<Body>, z.output<Query>>,
    context: RequestContext,
  ) => Promise<z.input<Answer> extends undefined ? void : z.input<Answer> | undefined>;
}

/** Defines an endpoint of the API: what `body` lets in is what the handler gets, what `response` names is what leaves. */
export function defineRoute<
  Body extends z.ZodObject = z.ZodObject<Record<never, never>>,
  Answer extends z.ZodType = z.ZodUndefined,
  Query extends z.ZodObject = z.ZodObject<Record<never, never>>,
>(options: RouteOptions<Body, Answer, Query>): TenantRoute {
  return {
    status: options.response ? 200 : 204,
    cache: 'no-store',
    bodyLimit: bodyLimits.resource,
    ...options,
  };
}
