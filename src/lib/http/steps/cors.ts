import cors from '@koa/cors';
import type { Logger } from 'pino';
import { problem } from '../../problems.ts';
import type { HttpContext, HttpMiddleware } from '../../request-state.ts';

/**
 * Headers of responses that scripts of another origin may read, beside those that browsers
 * always show.
 */
export const exposedHeaders = [
  'Accept-Patch',
  'Allow',
  'Content-Disposition',
  'Content-Range',
  'Deprecation',
  'ETag',
  'Idempotency-Replayed',
  'Link',
  'Location',
  'Next-Cursor',
  'Preference-Applied',
  'RateLimit',
  'RateLimit-Limit',
  'RateLimit-Policy',
  'RateLimit-Remaining',
  'RateLimit-Reset',
  'Retry-After',
  'Sunset',
  'WWW-Authenticate',
  'X-Request-Id',
];
/** The seconds for which a browser need not repeat a preflight. Chromium takes no more. */
const maxAge = 7_200;

/**
 * Cross-origin resource sharing (Fetch Standard): scripts of the listed origins may read
 * responses. They send access tokens in a header, so no response allows credentials that a
 * browser adds by itself.
 */
export interface CrossOrigin {
  /**
   * Adds the headers to every response to a listed origin, errors included; undefined when no
   * origin is listed.
   */
  readonly headers: HttpMiddleware | undefined;
  /** Answers preflights: those of other origins than the listed ones are refused. */
  readonly preflights: HttpMiddleware;
  /** True for a preflight of a listed origin. */
  isListedPreflight(ctx: HttpContext): boolean;
}

/**
 * Returns the headers of a response to bytes that are no request. Without them, a script of a
 * listed origin sees a network failure in place of the problem.
 * @param received the last bytes, which may have the header `Origin`; a single listed origin
 *   needs none
 */
export function refusalHeaders(
  origins: readonly string[],
  received: Buffer | undefined,
): Record<string, string> {
  const [, named] =
    /^Origin:[ \t]*(\S+)[ \t]*\r?$/im.exec(received?.toString('latin1') ?? '') ?? [];
  const origin =
    origins.find(each => each === named) ??
    (origins.length === 1 && !named ? origins[0] : undefined);
  if (!origin) return {};

  return {
    'Access-Control-Allow-Origin': origin,
    'Access-Control-Expose-Headers': exposedHeaders.join(','),
    Vary: 'Origin',
  };
}

/** Maximum origins whose refusal is remembered, so that it is logged once. */
const maxNoticed = 100;
/** Maximum characters of an origin in the log. */
const maxOriginLength = 200;

/** @param origins such as `https://app.example.com` */
export function crossOrigin(origins: readonly string[], log: Pick<Logger, 'warn'>): CrossOrigin {
  const listed = new Set(origins);
  const refused = new Set<string>();
  const allow = cors({
    origin: ctx => (listed.has(ctx.get('Origin')) ? ctx.get('Origin') : ''), // '' adds no header
    allowMethods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    exposeHeaders: exposedHeaders,
    keepHeadersOnError: false, // `problemDetails` removes none
    maxAge,
  });

  function noteRefused(origin: string): void {
    if (refused.has(origin)) return;
    if (refused.size >= maxNoticed) refused.clear();
    refused.add(origin);
    log.warn(
      { event: 'unlisted_origin', origin },
      'a browser asked whether a page of this origin may call the API, and was refused: to allow ' +
        'it, add the origin to CORS_ORIGINS',
    );
  }

  return {
    headers:
      listed.size === 0
        ? undefined
        : (ctx, next) => (ctx.method === 'OPTIONS' ? next() : allow(ctx, next)),

    preflights: (ctx, next) => {
      if (!isPreflight(ctx)) return next();
      if (listed.has(ctx.get('Origin'))) return allow(ctx, next);

      noteRefused(ctx.get('Origin').slice(0, maxOriginLength));
      throw problem('origin_not_allowed', {
        detail: 'The operator of the service lists the origins whose pages may call it.',
        headers: { Vary: 'Origin' },
      });
    },

    isListedPreflight: ctx => isPreflight(ctx) && listed.has(ctx.get('Origin')),
  };
}

/** True for the question of a browser that comes before a request (Fetch Standard §3.2.2). */
function isPreflight(ctx: HttpContext): boolean {
  return (
    ctx.method === 'OPTIONS' &&
    ctx.get('Origin') !== '' &&
    ctx.get('Access-Control-Request-Method') !== ''
  );
}
