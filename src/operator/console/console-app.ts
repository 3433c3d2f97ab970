import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Router } from '@koa/router';
import Koa, { type Context, type Middleware } from 'koa';
import { assets, type Content, mediaTypes } from '../../docs/assets.ts';
import { html } from '../../docs/html.ts';
import { explain, OperatorError } from '../../log/operator-error.ts';
import { type Shell, sendPage } from './console-page.ts';
import type { ConsoleServices } from './console-services.ts';
import { createFormTokens } from './form-tokens.ts';
import { guard } from './guard.ts';
import { addOperationRoutes } from './operation-routes.ts';
import { addPages } from './pages/console-pages.ts';
import { addRunRoutes } from './run-routes.ts';

/** Creates the pages of the console as a request listener. */
export function createConsoleApp(
  services: ConsoleServices,
): (request: IncomingMessage, response: ServerResponse) => unknown {
  const { entrance, shell } = services;
  const tokens = createFormTokens();
  const router = new Router();
  const files = new Map<string, Content>([
    ...assets,
    ['/console.css', { type: 'css', render: () => ownFile('console.css') }],
    ['/console.js', { type: 'js', render: () => ownFile('console.js') }],
  ]);
  addPages(router, services);
  addOperationRoutes(router, services, tokens);
  addRunRoutes(router, services, tokens);
  const app = new Koa();
  app.silent = true; // `explained` sends every error
  return app
    .use(explained(shell))
    .use(guard(entrance, shell, path => files.has(path)))
    .use(servedFiles(files))
    .use(router.routes())
    .use(ctx => sendPage(ctx, shell, notFound, 404))
    .callback();
}

function ownFile(name: string): Promise<string> {
  return readFile(new URL(name, import.meta.url), 'utf8');
}

const notFound = {
  title: 'Not found',
  main: html`<h1>There is no such page</h1><p><a href="/">Go to the fleet</a></p>`,
};

/** Sends what went wrong as a page, in the sentence of the command line. */
function explained(shell: Shell): Middleware {
  return async (ctx, next) => {
    try {
      await next();
    } catch (error) {
      const isMissing = error instanceof OperatorError && /^There is no /.test(error.message);
      const main = html`<h1>${isMissing ? 'Not found' : 'This page cannot be shown'}</h1>
<p class="note bad" role="alert">${explain(error)}</p><p><a href="${ctx.url}">Try again</a></p>`;
      sendPage(ctx, shell, { title: 'Error', main }, isMissing ? 404 : 503);
    }
  };
}

function servedFiles(files: ReadonlyMap<string, Content>): Middleware {
  return async (ctx: Context, next) => {
    const file = files.get(ctx.path);
    if (!file) return next();
    ctx.set('Cache-Control', 'no-cache');
    ctx.type = mediaTypes[file.type];
    ctx.body = await file.render();
  };
}
