import type { Middleware } from 'koa';

/** Sets the security headers of every response. No response may be stored unless its route allows it. */
export function securityHeaders(): Middleware {
  return (ctx, next) => {
    ctx.res.setHeader('X-Content-Type-Options', 'nosniff');
    ctx.res.setHeader('Cache-Control', 'no-store');
    ctx.res.setHeader('Referrer-Policy', 'no-referrer');
    return next();
  };
}
