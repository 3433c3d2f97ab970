import type { z } from 'zod';
import { enforceScope } from '../accounts/auth/enforce-scope.ts';
import { readIdempotencyKey } from '../lib/http/request/idempotency-key.ts';
import { ListExport, prefersCsv } from '../lib/http/request/list-parameters/list-export.ts';
import { readBody } from '../lib/http/request/read-body.ts';
import {
  InvalidFields,
  inexactErrors,
  prefersStrict,
  readFields,
  readPatch,
  unknownNames,
} from '../lib/http/request/read-fields.ts';
import {
  hasFilters,
  type QueryInput,
  readParameters,
} from '../lib/http/request/read-parameters.ts';
import { readUpload } from '../lib/http/request/read-upload.ts';
import { similarPath } from '../lib/http/request/similar-path.ts';
import { EventStream, sendEventStream } from '../lib/http/response/event-stream.ts';
import { contentRange, Page } from '../lib/http/response/list-page.ts';
import { preconditionOf, Representation } from '../lib/http/response/representation.ts';
import { type ResponseFilter, responseFilter } from '../lib/http/response/response-filter.ts';
import { sendExport } from '../lib/http/response/send-export.ts';
import { pieceSender } from '../lib/http/response/send-piece.ts';
import { sendResponse } from '../lib/http/response/send-response.ts';
import type { UnsentResponses } from '../lib/http/response/unsent-responses.ts';
import type { ReadUpload } from '../lib/http/route.ts';
import type { Routers } from '../lib/http/server/routers.ts';
import { extendDuration } from '../lib/http/steps/limit-duration.ts';
import { Problem, problem } from '../lib/problems.ts';
import type { HttpContext, HttpMiddleware } from '../lib/request-state.ts';
import {
  permissionMissing,
  requiredPermission,
  type TenantRoute,
} from '../tenancy/define-route.ts';

/** Records the pattern of the route for the access log and the metrics. */
export function nameRoute(route: TenantRoute): HttpMiddleware {
  return function nameRequest(ctx, next) {
    ctx.state.route = route.path;
    return next();
  };
}

/**
 * Refuses callers without the permission of the route (403); undefined when the route asks for
 * none.
 */
export function requirePermission(route: TenantRoute): HttpMiddleware | undefined {
  const permission = requiredPermission(route);
  if (!permission) return undefined;
  return function checkPermission(ctx, next) {
    if (!ctx.state.context.caller.permissions.has(permission)) throw permissionMissing(permission);
    return next();
  };
}

/** The services that responses use. */
export interface ResponseServices {
  readonly unsentResponses: UnsentResponses;
  /** Returns the address of a path, for a header that the client of a request follows. */
  readonly addressOf: (path: string, headers: HttpContext['req']['headers']) => string;
}

/**
 * Body → scope → fields → handler → response. The response contains only the fields that the
 * route names. A `Representation` is sent without that step: it is made of rows that have
 * exactly the fields of a view.
 */
export function respond(
  route: TenantRoute,
  { unsentResponses: unsent, addressOf }: ResponseServices,
): HttpMiddleware {
  const filter: ResponseFilter = route.response ? responseFilter(route.response) : () => undefined;

  return async function respondToRequest(ctx) {
    const { context, deadline } = ctx.state;
    if (route.deadlineMs !== undefined) extendDuration(ctx, route.deadlineMs);
    const idempotencyKey = idempotencyKeyOf(ctx, route);
    const strict = prefersStrict(ctx.req.headers.prefer);
    if (strict) ctx.set('Preference-Applied', 'handling=strict');

    const body = route.body ? await readInput(ctx, route, route.body, strict) : {};
    const parameters: QueryInput =
      route.query || route.list || strict || hasFilters(ctx.querystring)
        ? readParameters(ctx, route, strict)
        : noQuery;
    const input = {
      body: body as never,
      ...(parameters as QueryInput<never>),
      params: ctx.params,
      precondition: route.takesIfMatch
        ? preconditionOf(ctx.req.headers, route.volatile)
        : undefined,
      lastEventId: route.takesLastEventId ? lastEventIdOf(ctx) : undefined,
      prefersCsv: route.csv !== undefined && prefersCsv(ctx.req.headers.accept),
      readUpload: uploadReader(ctx, route),
      idempotencyKey,
    };

    if (idempotencyKey !== undefined && !route.upload) {
      context.makeRepeatable(idempotencyKey, [ctx.path, ctx.querystring, body]);
    }

    const result = await route.handler(input, context);
    if (context?.repeatable?.isReplayed) ctx.set('Idempotency-Replayed', 'true');
    deadline.throwIfPassed(); // the request has been answered

    if (result instanceof Page) return sendPage(ctx, route, result, addressOf);
    if (result instanceof EventStream) return sendEventStream(ctx, result, unsent);
    if (result instanceof ListExport) {
      return sendExport(ctx, result, piece => context.continue(piece), pieceSender(ctx, unsent));
    }
    const sent = result instanceof Representation ? result : filter(result);
    if (route.location && sent !== undefined) {
      ctx.set('Location', addressOf(route.location(sent as never), ctx.req.headers));
    }
    await sendResponse(ctx, route, sent);
  };
}

/**
 * Returns the header `Last-Event-ID`; undefined for an empty one (HTML Standard §9.2.4): the
 * client has received no event yet, or one that reset the id.
 */
function lastEventIdOf({ req }: HttpContext): string | undefined {
  return req.headers['last-event-id'] || undefined;
}

/**
 * Returns the header `Idempotency-Key`. An empty key is refused: without a key, a repeated
 * request would be made twice.
 * @throws {Problem} `invalid_request`, also for a POST that takes no key: a repeated request
 *   would be made twice, against the promise of the key
 */
function idempotencyKeyOf(
  { req }: HttpContext,
  { method, takesIdempotencyKey }: TenantRoute,
): string | undefined {
  const key = req.headers['idempotency-key'];
  if (key === undefined || method !== 'POST') return undefined;
  if (takesIdempotencyKey) return readIdempotencyKey(key);
  throw problem('invalid_request', {
    detail: 'This endpoint takes no Idempotency-Key: send the request without it.',
  });
}

const noQuery: QueryInput = { query: {} };

function sendPage(
  ctx: HttpContext,
  route: TenantRoute,
  page: Page,
  addressOf: ResponseServices['addressOf'],
): void | Promise<void> {
  const { representation, next, count, cursor } = page;
  if (cursor !== undefined) ctx.set('Next-Cursor', cursor);
  if (next !== undefined) {
    ctx.set('Link', `<${addressOf(next, ctx.req.headers)}>; rel="next"`);
  }
  if (count) ctx.vary('Prefer');
  if (count?.total !== undefined) ctx.append('Preference-Applied', 'count=exact');

  const range = count && contentRange(count);
  if (range === undefined) return sendResponse(ctx, route, representation);

  ctx.set('Content-Range', range);
  return sendResponse(ctx, route, representation.taggedWith(range));
}

/**
 * Returns the reader of an upload: only a route with `upload` reads a body that is not JSON.
 */
function uploadReader(ctx: HttpContext, { upload }: TenantRoute): ReadUpload {
  return upload ? onChunk => readUpload(ctx, upload, onChunk) : noUpload;
}

const noUpload: ReadUpload = async () => {
  throw new Error('the route has no upload');
};

async function readInput(
  ctx: HttpContext,
  route: TenantRoute,
  contract: z.ZodObject,
  strict: boolean,
): Promise<object> {
  const caller = ctx.state.context?.optionalCaller;
  const body = { ...(await readBody(ctx, route.bodyLimit)) };
  const unknown = strict
    ? unknownNames(Object.keys(body), contract, 'is not a field of this request')
    : {};
  const errors = { ...unknown, ...inexactErrors(ctx.state.inexactFields ?? [], contract) };
  if (route.method === 'POST' && caller) enforceScope(body, caller);
  try {
    return route.takesPart ? readPatch(contract, body, errors) : readFields(contract, body, errors);
  } catch (error) {
    throw error instanceof InvalidFields ? await withFurtherErrors(ctx, route, error) : error;
  }
}

/**
 * Adds the errors that a route finds in the fields that its contract takes, so that a client
 * learns all errors of its request at once.
 */
async function withFurtherErrors(
  ctx: HttpContext,
  route: TenantRoute,
  { errors, valid }: InvalidFields,
): Promise<Problem> {
  const input = { body: valid, errors, params: ctx.params };
  const further = await route.checkValid?.(input, ctx.state.context).catch(error => {
    if (error instanceof Problem && error.status < 500) return {};
    throw error;
  });

  return problem('validation_failed', { errors: { ...further, ...errors } });
}

function unknownPathDetail(path: string, paths: readonly string[]): string {
  const similar = similarPath(path, paths);
  return `No endpoint has this path.${similar ? ` Did you mean ${similar}?` : ''}`;
}

const knownMethods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/**
 * Refuses an unknown path (404) or method (405). Only a caller who could use an existing route
 * learns that one is missing: 403 and 401 come first.
 */
export function unknownRoute(
  routers: Routers,
  routes: readonly TenantRoute[],
  authenticateUser: HttpMiddleware,
): HttpMiddleware {
  const anonymousPaths = new Set(
    routes
      .filter(({ access }) => ['anonymous', 'optional', 'client'].includes(access))
      .map(({ path }) => path),
  );
  const paths = [...new Set(routes.map(({ path }) => path))];

  return async function refuseUnknown(ctx) {
    if (!knownMethods.has(ctx.method)) throw problem('not_implemented');
    const matches = routers.ofPath(ctx.path);
    if (!matches.some(({ path }) => anonymousPaths.has(path))) {
      await authenticateUser(ctx, async () => {});
    }
    if (matches.length === 0) {
      throw problem('not_found', { detail: unknownPathDetail(ctx.path, paths) });
    }
    throw problem('method_not_allowed', {
      headers: { Allow: matches.flatMap(({ methods }) => methods).join(', ') },
    });
  };
}
