import type { Middleware } from 'koa';

/** Headers of every answer. Nothing may be kept unless a route says so. */
export function securityHeaders(): Middleware {
  return (ctx, next) => {
    ctx.set({ 'X-Content-Type-Options': 'nosniff', 'Cache-Control': 'no-store', 'Referrer-Policy': 'no-referrer' });
    return next();
  };
}
