import type { Middleware } from 'koa';

/** Headers of every answer. Nothing may be kept unless a route says so. */
export function securityHeaders(): Middleware {
  return (ctx, next) => {
    ctx.res.setHeader('X-Content-Type-Options', 'nosniff');
    ctx.res.setHeader('Cache-Control', 'no-store');
    ctx.res.setHeader('Referrer-Policy', 'no-referrer');
    return next();
  };
}
