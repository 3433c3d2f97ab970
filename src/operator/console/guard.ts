import type { Context, Middleware } from 'koa';
import { contentSecurityPolicy } from '../../docs/assets.ts';
import { html } from '../../docs/html.ts';
import { fixedHeaders } from '../../http/security-headers.ts';
import { sendPage } from './console-page.ts';
import type { Entrance } from './entrance.ts';

const headers = {
  ...fixedHeaders,
  'Referrer-Policy': 'same-origin', // otherwise, browsers send `Origin: null` with a form
  'Content-Security-Policy': contentSecurityPolicy,
  'X-Frame-Options': 'DENY',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
};

/**
 * Lets a request pass only if a page of the console sends it, from a browser whose user is known:
 *
 * 1. It comes from an admitted address (of a team: from the proxy).
 * 2. It names a host of the console: with DNS rebinding it would name another one.
 * 3. It has the cookie of the session, or the name that the proxy gives.
 * 4. Unless it is a GET or HEAD, a page of the same origin sends it.
 *
 * Files without secrets pass without 3 (`isPublic`).
 */
export function guard(entrance: Entrance, isPublic: (path: string) => boolean): Middleware {
  return async (ctx, next) => {
    ctx.set(headers);
    const host = entrance.admits(ctx.req.socket.remoteAddress) ? entrance.hostOf(ctx.req) : undefined;
    if (host === undefined) return refuse(ctx, 'This address leads to no page of the console.');
    if (ctx.path === '/start' && ctx.method === 'GET') {
      const cookie = entrance.redeem(String(ctx.query.token ?? ''));
      return cookie === undefined ? refuse(ctx, unknownVisitor) : start(ctx, cookie);
    }
    if (isPublic(ctx.path)) return next();
    const visitor = entrance.visitorOf(ctx.req);
    if (!visitor) return refuse(ctx, unknownVisitor);
    if (!['GET', 'HEAD'].includes(ctx.method) && !isOwnOrigin(ctx, host))
      return refuse(ctx, 'The request comes from a page of another origin. Nothing was changed.');
    ctx.state.visitor = visitor;
    return next();
  };
}

const unknownVisitor =
  'This browser is not the one that opened the console, or the address was used before: each works once. ' +
  'End the console with Ctrl-C, and start it again: npx backoffice console';

function refuse(ctx: Context, text: string): void {
  ctx.set('Connection', 'close');
  sendPage(ctx, { title: 'No access', main: html`<h1>No access</h1><p>${text}</p>` }, 403);
}

/**
 * Sends a page that goes on by itself. A redirect would lose the strict cookie, which browsers send only with requests
 * that a page of this site begins.
 */
function start(ctx: Context, cookie: string): void {
  ctx.set('Set-Cookie', cookie);
  const main = html`<h1>The console is open</h1><p><a href="/">Go on to the fleet</a></p>`;
  sendPage(ctx, { title: 'Start', main, refresh: { seconds: 0, to: '/' } });
}

/** True if a page of the console sends the request, by `Sec-Fetch-Site` of browsers that have it, and by `Origin`. */
function isOwnOrigin(ctx: Context, host: string): boolean {
  const site = ctx.get('Sec-Fetch-Site');
  return ['', 'same-origin'].includes(site) && [`http://${host}`, `https://${host}`].includes(ctx.get('Origin'));
}
