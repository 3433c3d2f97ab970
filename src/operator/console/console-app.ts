import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Router } from '@koa/router';
import Koa from 'koa';
import { assets, type Content, mediaTypes } from '../../lib/html/assets.ts';
import { html } from '../../lib/html/html.ts';
import { explain, OperatorError } from '../../lib/log/operator-error.ts';
import { findSlugHolder } from '../registry/tenant-slugs.ts';
import { linkCommands } from './command-line.ts';
import {
  type Answer,
  type ConsoleContext,
  type ConsoleMiddleware,
  type ConsoleServices,
  ownPath,
  type PageRequest,
  sendPage,
} from './console-page.ts';
import { guard } from './guard.ts';
import { capacityPage } from './views/capacity.ts';
import {
  cancelRun,
  commandsPage,
  operationPage,
  performPlan,
  runOutput,
  runPage,
  startOperation,
} from './views/commands.ts';
import { findingsPage } from './views/findings.ts';
import { migrationRunPage, migrationsPage } from './views/migrations.ts';
import { nowPage } from './views/now.ts';
import { logPage } from './views/operator-log.ts';
import { recoveryPage, tenantRecoveryPage } from './views/recovery.ts';
import { tenantsPage } from './views/tenant-list.ts';
import { tenantCommandsPage, tenantPage } from './views/tenant-page.ts';

type Handlers = Readonly<Record<string, (request: PageRequest) => Answer | Promise<Answer>>>;

/** The pages, which change nothing. */
const pages: Handlers = {
  '/': nowPage,
  '/tenants': tenantsPage,
  '/tenants/:slug': tenantPage,
  '/tenants/:slug/commands': tenantCommandsPage,
  '/migrations': migrationsPage,
  '/migrations/:id': migrationRunPage,
  '/recovery': recoveryPage,
  '/recovery/:slug': tenantRecoveryPage,
  '/findings': findingsPage,
  '/capacity': capacityPage,
  '/log': logPage,
  '/operations': commandsPage,
  '/operations/:topic{/:word{/:verb}}': operationPage,
  '/runs/:id': runPage,
  '/runs/:id/output': runOutput,
};

/** The handlers of the forms of pages. */
const changes: Handlers = {
  '/operations/:topic{/:word{/:verb}}': startOperation,
  '/runs/:id/perform': performPlan,
  '/runs/:id/cancel': cancelRun,
};

const ownFile = (name: string): Promise<string> => readFile(new URL(name, import.meta.url), 'utf8');

const files = new Map<string, Content>([
  ...assets,
  ['/console.css', { type: 'css', render: () => ownFile('console.css') }],
  ['/console.js', { type: 'js', render: () => ownFile('console.js') }],
]);

/** Creates the pages of the console as a request listener. */
export function createConsoleApp(
  services: ConsoleServices,
): (request: IncomingMessage, response: ServerResponse) => unknown {
  const router = new Router();

  const respond =
    (handle: Handlers[string]): ConsoleMiddleware =>
    async ctx => {
      const { visitor, given, tokenOf, isStale } = ctx.state;
      const query = (name: string) => given.get(name)?.trim() || undefined;
      const { params } = ctx;
      const present = await presentSlugOf(services, params.slug);
      if (present !== undefined) return send(ctx, { to: pathWithSlug(ctx, present) });

      send(ctx, await handle({ ...services, visitor, params, given, query, tokenOf, isStale }));
    };

  for (const [path, page] of Object.entries(pages)) router.get(path, respond(page));
  for (const [path, change] of Object.entries(changes)) router.post(path, respond(change));
  const app = new Koa();
  app.silent = true; // `explained` sends every error

  return app
    .use(explained(services))
    .use(guard(services.entrance, path => files.has(path)))
    .use(servedFiles)
    .use(router.routes())
    .use(() => {
      throw new OperatorError('There is no such page');
    })
    .callback();
}

/** Returns the present slug of the tenant of an alias; undefined for another text. */
async function presentSlugOf(
  { control }: ConsoleServices,
  slug: string | undefined,
): Promise<string | undefined> {
  const holder = slug === undefined ? undefined : await findSlugHolder(control, slug);
  return holder?.state === 'alias' ? (holder.present ?? undefined) : undefined;
}

/** The address of a page of a tenant, `/<page>/<slug>…`, with another slug. */
function pathWithSlug({ path, search }: ConsoleContext, slug: string): string {
  const [root, page, , ...rest] = path.split('/');

  return [root, page, slug, ...rest].join('/') + search;
}

function send(ctx: ConsoleContext, answer: Answer): void {
  if (typeof answer === 'string') {
    ctx.type = 'text/plain; charset=utf-8';
    ctx.body = answer;
  } else if ('to' in answer) {
    ctx.status = 303;
    ctx.redirect(answer.to);
  } else {
    sendPage(ctx, answer);
  }
}

/** Sends an error as a page, in the sentence of the command line. */
function explained({ shell, offered }: ConsoleServices): ConsoleMiddleware {
  return async function explainFailure(ctx, next) {
    Object.assign(ctx.state, { shell });
    try {
      await next();
    } catch (error) {
      const isMissing = error instanceof OperatorError && /^There is no /.test(error.message);
      const way = isMissing
        ? html`<a href="/">See what there is</a>`
        : html`<a href="${ownPath(ctx)}">Try again</a>`;
      const main = html`<p class="note bad" role="alert">${linkCommands(explain(error), offered)}</p><p>${way}</p>`;
      const title = isMissing ? 'Not found' : 'This page cannot be shown';
      sendPage(ctx, { title, main, status: isMissing ? 404 : 503 });
    }
  };
}

const servedFiles: ConsoleMiddleware = async (ctx, next) => {
  const file = files.get(ctx.path);
  if (!file) return next();
  ctx.set('Cache-Control', 'no-cache');
  ctx.type = mediaTypes[file.type];
  ctx.body = await file.render();
};
