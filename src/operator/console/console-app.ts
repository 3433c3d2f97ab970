import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Router } from '@koa/router';
import Koa, { type Context, type Middleware } from 'koa';
import { assets, type Content, mediaTypes } from '../../docs/assets.ts';
import { html } from '../../docs/html.ts';
import { explain, OperatorError } from '../../log/operator-error.ts';
import { linkCommands } from './command-links.ts';
import { type ConsolePage, sendPage } from './console-page.ts';
import type { ConsoleServices, PageRequest } from './console-services.ts';
import { createFormTokens } from './form-tokens.ts';
import { guard } from './guard.ts';
import { addOperationRoutes } from './operation-routes.ts';
import { capacityPage } from './pages/capacity.ts';
import { findingsPage } from './pages/findings.ts';
import { nowPage } from './pages/now.ts';
import { logPage } from './pages/operator-log.ts';
import { recoveryPage, tenantRecoveryPage } from './pages/recovery.ts';
import { rolloutPage, rolloutsPage } from './pages/rollouts.ts';
import { tenantsPage } from './pages/tenant-list.ts';
import { tenantPage } from './pages/tenant-page.ts';
import { addRunRoutes } from './run-routes.ts';

/** The pages that only show what the control database has. */
const views: Readonly<Record<string, (request: PageRequest) => Promise<ConsolePage>>> = {
  '/': nowPage,
  '/tenants': tenantsPage,
  '/tenants/:slug': tenantPage,
  '/rollouts': rolloutsPage,
  '/rollouts/:id': rolloutPage,
  '/recovery': recoveryPage,
  '/recovery/:slug': tenantRecoveryPage,
  '/findings': findingsPage,
  '/capacity': capacityPage,
  '/log': logPage,
};

const files = new Map<string, Content>([
  ...assets,
  ['/console.css', { type: 'css', render: () => ownFile('console.css') }],
  ['/console.js', { type: 'js', render: () => ownFile('console.js') }],
]);

function ownFile(name: string): Promise<string> {
  return readFile(new URL(name, import.meta.url), 'utf8');
}

/** Creates the pages of the console as a request listener. */
export function createConsoleApp(
  services: ConsoleServices,
): (request: IncomingMessage, response: ServerResponse) => unknown {
  const tokens = createFormTokens();
  const router = new Router();
  for (const [path, view] of Object.entries(views))
    router.get(path, async (ctx: Context) => {
      const query = (name: string) => new URLSearchParams(ctx.querystring).get(name)?.trim() || undefined;
      sendPage(ctx, await view({ services, params: ctx.params, query }));
    });
  addOperationRoutes(router, services, tokens);
  addRunRoutes(router, services, tokens);
  const app = new Koa();
  app.silent = true; // `explained` sends every error
  return app
    .use(explained(services))
    .use(guard(services.entrance, path => files.has(path)))
    .use(servedFiles)
    .use(router.routes())
    .use(ctx => sendPage(ctx, notFound, 404))
    .callback();
}

const notFound = {
  title: 'Not found',
  main: html`<h1>There is no such page</h1><p><a href="/">Go to the fleet</a></p>`,
};

/** Sends what went wrong as a page, in the sentence of the command line. */
function explained({ shell, offered }: ConsoleServices): Middleware {
  return async (ctx, next) => {
    ctx.state.shell = shell;
    try {
      await next();
    } catch (error) {
      const isMissing = error instanceof OperatorError && /^There is no /.test(error.message);
      const main = html`<h1>${isMissing ? 'Not found' : 'This page cannot be shown'}</h1>
<p class="note bad" role="alert">${linkCommands(explain(error), offered)}</p><p><a href="${ctx.url}">Try again</a></p>`;
      sendPage(ctx, { title: 'Error', main }, isMissing ? 404 : 503);
    }
  };
}

const servedFiles: Middleware = async (ctx, next) => {
  const file = files.get(ctx.path);
  if (!file) return next();
  ctx.set('Cache-Control', 'no-cache');
  ctx.type = mediaTypes[file.type];
  ctx.body = await file.render();
};
