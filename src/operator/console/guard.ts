import { createHmac, randomBytes } from 'node:crypto';
import { contentSecurityPolicy } from '../../lib/html/assets.ts';
import { html } from '../../lib/html/html.ts';
import { fixedHeaders } from '../../lib/http/steps/security-headers.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import {
  type ConsoleContext,
  type ConsoleMiddleware,
  reloadAfter,
  sendPage,
} from './console-page.ts';
import { type Entrance, isEqual } from './entrance.ts';

const headers = {
  ...fixedHeaders,
  'Referrer-Policy': 'same-origin', // otherwise, browsers send `Origin: null` with a form
  'Content-Security-Policy': contentSecurityPolicy,
  'X-Frame-Options': 'DENY',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
};
const maxFormLength = 100_000;

/**
 * Lets a request pass only if a page of the console sends it, from a browser whose user is
 * known:
 *
 * 1. Of a team, it comes from the proxy.
 * 2. It names a host of the console: with DNS rebinding it would name another one.
 * 3. It has the cookie of the session, or the name that the proxy gives.
 * 4. Unless it is a GET or HEAD, a page of the same origin sends it, with a token that is for
 *    this visitor and path. The form of an operation without it is only shown again (`isStale`).
 *
 * Files without secrets pass without 3 (`isPublic`). What passes has `visitor`, `given`,
 * `isStale` and `tokenOf` of `PageRequest`.
 */
export function guard(entrance: Entrance, isPublic: (path: string) => boolean): ConsoleMiddleware {
  const key = randomBytes(32);

  return async function guardConsole(ctx, next) {
    ctx.set(headers);
    const host = entrance.hostOf(ctx.req);
    if (host === undefined) return refuse(ctx, 'This address leads to no page of the console.');

    if (ctx.path === '/start' && ctx.method === 'GET') {
      const cookie = entrance.redeem(String(ctx.query.token ?? ''));
      return cookie === undefined ? refuse(ctx, unknownVisitor) : start(ctx, cookie);
    }

    if (isPublic(ctx.path)) return next();
    const visitor = entrance.visitorOf(ctx.req);
    const isChange = !['GET', 'HEAD'].includes(ctx.method);
    if (!visitor) return refuse(ctx, isChange ? unknownSender : unknownVisitor);

    if (isChange && !isOwnOrigin(ctx, host)) {
      return refuse(ctx, 'The request comes from a page of another origin. Nothing was changed.');
    }

    const tokenOf = (path: string): string =>
      createHmac('sha256', key).update(`${visitor.session}\n${path}`).digest('base64url');
    Object.assign(ctx.state, { visitor, tokenOf });

    const given = new URLSearchParams(isChange ? await readForm(ctx) : ctx.querystring);
    const isStale = isChange && !isEqual(given.get('token') ?? '', tokenOf(ctx.path));
    // A filled-in form of an operation is not lost: its page shows it again, and does nothing.
    if (isStale && !ctx.path.startsWith('/operations/')) {
      throw new OperatorError(
        'The form is of an earlier console or of another page. Open it again',
      );
    }

    Object.assign(ctx.state, { given, isStale });
    return next();
  };
}

const unknownVisitor =
  'This browser is not the one that opened the console, or the address was used before: each ' +
  'works once. End the console with Ctrl-C, and start it again: bin/backoffice console';

const unknownSender =
  `Nothing was run. ${unknownVisitor}. Then load this page again: ` +
  'the browser sends the form once more, and you get it back as you have filled it in.';

function refuse(ctx: ConsoleContext, text: string): void {
  ctx.set('Connection', 'close');
  sendPage(ctx, { title: 'No access', main: html`<p>${text}</p>`, status: 403 });
}

/**
 * Sends a page that loads the next one by itself. A redirect would lose the strict cookie,
 * which browsers send only with requests that a page of this site begins.
 */
function start(ctx: ConsoleContext, cookie: string): void {
  ctx.set('Set-Cookie', cookie);
  const main = html`<p><a href="/">Go on to the fleet</a></p>`;
  sendPage(ctx, { title: 'The console is open', main, head: reloadAfter(0, '/') });
}

/**
 * True if a page of the console sends the request, by `Sec-Fetch-Site` of browsers that have
 * it, and by `Origin`.
 */
function isOwnOrigin(ctx: ConsoleContext, host: string): boolean {
  const site = ctx.get('Sec-Fetch-Site');
  return (
    ['', 'same-origin'].includes(site) &&
    [`http://${host}`, `https://${host}`].includes(ctx.get('Origin'))
  );
}

async function readForm(ctx: ConsoleContext): Promise<string> {
  let text = '';
  for await (const chunk of ctx.req.setEncoding('utf8')) {
    text += chunk;
    if (text.length > maxFormLength) throw new OperatorError('The form is too large');
  }
  return text;
}
