import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Middleware } from 'koa';
import type { TenantRoute } from '../tenancy/define-route.ts';
import { errorsPage } from './errors-page.ts';
import { guidePage } from './guide.ts';
import { openApiDocument, openApiText } from './openapi-document.ts';
import { operatorsPage } from './operators-page.ts';
import { referencePage } from './reference.ts';
import { swaggerFile, swaggerPage, swaggerStart } from './swagger.ts';

interface Content {
  readonly type: 'html' | 'css' | 'js' | 'json';
  readonly load: () => string | Promise<string>;
}

const types = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  json: 'application/json; charset=utf-8',
};

/** Nothing from elsewhere; Swagger UI sets styles and shows images of its own in data URLs. */
const contentSecurityPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/**
 * The documentation: pages, style sheet, OpenAPI document and explorer, at exactly these paths. They need no tenant and
 * no user, and know nothing of either.
 */
export function documentationPages(routes: readonly TenantRoute[], base: string): Middleware {
  const contents = new Map<string, Content>([
    ['/docs', { type: 'html', load: () => guidePage(base) }],
    ['/docs/reference', { type: 'html', load: () => referencePage(openApiDocument(routes)) }],
    ['/docs/errors', { type: 'html', load: errorsPage }],
    ['/docs/operators', { type: 'html', load: operatorsPage }],
    ['/docs/openapi.json', { type: 'json', load: () => openApiText(routes) }],
    ['/css/docs.css', { type: 'css', load: () => readFile(new URL('style.css', import.meta.url), 'utf8') }],
    ['/swagger', { type: 'html', load: () => swaggerPage }],
    ['/swagger/start.js', { type: 'js', load: () => swaggerStart }],
    ['/swagger/swagger-ui.css', { type: 'css', load: () => swaggerFile('swagger-ui.css') }],
    ['/swagger/swagger-ui-bundle.js', { type: 'js', load: () => swaggerFile('swagger-ui-bundle.js') }],
  ]);
  /** Made on first use. */
  const made = new Map<string, Promise<{ bytes: Buffer; etag: string }>>();
  const make = async (load: Content['load']) => {
    const bytes = Buffer.from(await load());
    return { bytes, etag: `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 27)}"` };
  };

  return async (ctx, next) => {
    const reads = ctx.method === 'GET' || ctx.method === 'HEAD';
    if (reads && ctx.path === '/') return ctx.redirect('/docs');
    const content = contents.get(ctx.path);
    if (!content || !reads) return next();
    ctx.state.route = ctx.path;
    const page = made.get(ctx.path) ?? make(content.load);
    made.set(ctx.path, page);
    page.catch(() => made.delete(ctx.path)); // the next one tries again
    const { bytes, etag } = await page;
    ctx.status = 200;
    ctx.set({ 'Cache-Control': 'no-cache', 'Content-Security-Policy': contentSecurityPolicy, ETag: etag });
    if (ctx.fresh) {
      ctx.status = 304;
      return;
    }
    ctx.type = types[content.type];
    ctx.body = bytes;
  };
}
