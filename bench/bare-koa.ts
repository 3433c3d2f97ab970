import { createServer } from 'node:http';
import Router from '@koa/router';
import Koa from 'koa';
import { listen } from './listen.ts';
import { etag, fetchBody, fetchedBody } from './origin.ts';

/**
 * The bare-koa server: sends the same bytes as bare-http, with the framework of the service and
 * the headers of its responses. It includes Koa's own handling of every response, which the
 * service bypasses.
 */
const headers = {
  'X-Request-Id': '00000000-0000-4000-8000-000000000000',
  'X-Content-Type-Options': 'nosniff',
  'Cache-Control': 'private, no-cache, max-age=0, must-revalidate',
  'Referrer-Policy': 'no-referrer',
  'RateLimit-Limit': '1000000',
  'RateLimit-Remaining': '999999',
  'RateLimit-Reset': '1',
  RateLimit: '"global";r=999999;t=1',
  'RateLimit-Policy': '"global";q=1000000;w=1',
  Vary: 'Authorization, Accept',
  ETag: etag,
};

const router = new Router();
for (const path of ['/api/v1/EntityStatus/:id', '/api/v1/UnitsOfMeasure']) {
  router.get(path, async ctx => {
    const body = fetchedBody(ctx.url) ?? (await fetchBody(ctx.url));
    if (!body) return;
    ctx.set(headers);
    ctx.status = ctx.get('If-None-Match') === etag ? 304 : 200;
    if (ctx.status === 304) return;
    ctx.type = 'application/json; charset=utf-8';
    ctx.body = body;
  });
}
const app = new Koa();
app.use(router.routes());
listen(createServer(app.callback()));
