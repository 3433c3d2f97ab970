import { createServer } from 'node:http';
import Router from '@koa/router';
import Koa from 'koa';
import { listening } from './listening.ts';
import { fetchAnswer, fetchedAnswer, tag } from './origin.ts';

/**
 * The same as the ceiling, with the framework of the service and the headers of its answers: Koa's own handling of
 * every answer included, which the service leaves out.
 */
const headers = {
  'X-Request-Id': '00000000-0000-4000-8000-000000000000',
  'X-Content-Type-Options': 'nosniff',
  'Cache-Control': 'private, no-cache',
  'Referrer-Policy': 'no-referrer',
  'RateLimit-Limit': '1000000',
  'RateLimit-Remaining': '999999',
  'RateLimit-Reset': '1',
  Vary: 'Authorization',
  ETag: tag,
};

const router = new Router();
for (const path of ['/api/v1/EntityStatus', '/api/v1/EntityStatus/:id', '/api/v1/UnitsOfMeasure']) {
  router.get(path, async ctx => {
    const body = fetchedAnswer(ctx.url) ?? (await fetchAnswer(ctx.url));
    if (!body) return;
    ctx.set(headers);
    ctx.status = ctx.get('If-None-Match') === tag ? 304 : 200;
    if (ctx.status === 304) return;
    ctx.type = 'application/json; charset=utf-8';
    ctx.body = body;
  });
}
const app = new Koa();
app.use(router.routes());
listening(createServer(app.callback()));
