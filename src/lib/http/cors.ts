import cors from '@koa/cors';
import type { Middleware } from 'koa';

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
  /** Adds the headers to every response to a listed origin, errors included. */
  readonly headers: Middleware;
  /**
   * Answers preflights of listed origins. All other preflights continue as requests without a
   * token.
   */
  readonly preflights: Middleware;
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

/** @param origins such as `https://app.example.com`; undefined when there are none */
export function crossOrigin(origins: readonly string[]): CrossOrigin | undefined {
  if (origins.length === 0) return undefined;

  const listed = new Set(origins);
  const allow = cors({
    origin: ctx => (listed.has(ctx.get('Origin')) ? ctx.get('Origin') : ''), // '' adds no header
    allowMethods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    exposeHeaders: exposedHeaders,
    keepHeadersOnError: false, // `problemDetails` removes none
    maxAge,
  });

  return {
    headers: (ctx, next) => (ctx.method === 'OPTIONS' ? next() : allow(ctx, next)),
    preflights: (ctx, next) => (ctx.method === 'OPTIONS' ? allow(ctx, next) : next()),
  };
}
