import type { HttpMiddleware } from '../../request-state.ts';

/**
 * The security headers of every response. No response may be stored unless its route allows it.
 */
export const fixedHeaders = {
  'X-Content-Type-Options': 'nosniff',
  'Cache-Control': 'no-store',
  'Referrer-Policy': 'no-referrer',
} as const;

/** Sets the security headers. */
export function securityHeaders(): HttpMiddleware {
  return function setSecurityHeaders(ctx, next) {
    ctx.res.setHeader('X-Content-Type-Options', fixedHeaders['X-Content-Type-Options']);
    ctx.res.setHeader('Cache-Control', fixedHeaders['Cache-Control']);
    ctx.res.setHeader('Referrer-Policy', fixedHeaders['Referrer-Policy']);
    return next();
  };
}
