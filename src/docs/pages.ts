import { readFile } from 'node:fs/promises';
import type { Context, Middleware } from 'koa';
import { Representation } from '../http/representation.ts';
import { sendRepresentation } from '../http/send-response.ts';
import type { TenantRoute } from '../tenancy/define-route.ts';
import { documentPage, documents } from './document-page.ts';
import { errorsPage } from './errors-page.ts';
import { notFoundPage } from './not-found-page.ts';
import { openApiDocument, openApiText } from './openapi-document.ts';
import { referencePage } from './reference-page.ts';
import { swaggerFile, swaggerPage } from './swagger.ts';

/** A file of the documentation, rendered when it is first requested. */
interface Content {
  readonly type: keyof typeof mediaTypes;
  readonly render: () => string | Promise<string>;
}

const mediaTypes = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  json: 'application/json; charset=utf-8',
  svg: 'image/svg+xml',
};

/** Allows nothing from another origin. Swagger UI needs inline styles and images in `data:` URLs. */
const contentSecurityPolicy =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
  "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/**
 * Serves the documentation: pages, style sheet, OpenAPI document and Swagger UI. The paths match exactly. They need no
 * tenant and no user, and the content depends on neither.
 * @param base address under which clients reach the service, for the examples
 */
export function documentationPages(routes: readonly TenantRoute[], base: string): Middleware {
  const contents = contentsByPath(routes, base);
  const rendered = new Map<string, Promise<Representation>>();

  return async (ctx, next) => {
    const isRead = ctx.method === 'GET' || ctx.method === 'HEAD';
    if (isRead && ctx.path === '/') return ctx.redirect('/docs');
    const content = contents.get(ctx.path);
    if (isRead && !content && isForPerson(ctx)) {
      const page = ctx.path.replace(/\/$/, '');
      if (contents.has(page)) return ctx.redirect(page);
      ctx.status = 404;
      ctx.set('Content-Security-Policy', contentSecurityPolicy);
      ctx.type = mediaTypes.html;
      ctx.body = notFoundPage();
      return;
    }
    if (!content || !isRead) return next();
    ctx.state.route = ctx.path;
    const rendering = rendered.get(ctx.path) ?? render(content);
    rendered.set(ctx.path, rendering);
    rendering.catch(() => rendered.delete(ctx.path)); // the next request tries again
    const document = await rendering;
    ctx.status = 200;
    ctx.set({ 'Cache-Control': 'no-cache', 'Content-Security-Policy': contentSecurityPolicy });
    return sendRepresentation(ctx, document, mediaTypes[content.type]);
  };
}

/** True for a path outside the API that a browser shows. All other clients get a problem, also for an unknown path. */
function isForPerson(ctx: Context): boolean {
  return !/^\/api(\/|$)/.test(ctx.path) && ctx.accepts('json', 'html') === 'html';
}

const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<rect width="16" height="16" rx="3" fill="#0b5fa5"/>
<path d="M4 12V8m4 4V4m4 8V6" stroke="#fff" stroke-width="2" stroke-linecap="round"/></svg>
`;

function contentsByPath(routes: readonly TenantRoute[], base: string): Map<string, Content> {
  const htmlPage = (render: Content['render']): Content => ({ type: 'html', render });
  return new Map<string, Content>([
    ...documents.map((each): [string, Content] => [each.path, htmlPage(() => documentPage(each, base))]),
    ['/docs/reference', htmlPage(() => referencePage(openApiDocument(routes)))],
    ['/docs/errors', htmlPage(errorsPage)],
    ['/docs/openapi.json', { type: 'json', render: () => openApiText(routes) }],
    ['/css/docs.css', { type: 'css', render: () => ownFile('style.css') }],
    ['/css/explorer.css', { type: 'css', render: () => ownFile('explorer.css') }],
    ['/favicon.ico', { type: 'svg', render: () => icon }],
    ['/swagger', htmlPage(() => swaggerPage)],
    ['/swagger/start.js', { type: 'js', render: () => ownFile('explorer.js') }],
    ['/swagger/swagger-ui.css', { type: 'css', render: () => swaggerFile('swagger-ui.css') }],
    ['/swagger/swagger-ui-bundle.js', { type: 'js', render: () => swaggerFile('swagger-ui-bundle.js') }],
  ]);
}

/** Reads a file of this folder. */
function ownFile(name: string): Promise<string> {
  return readFile(new URL(name, import.meta.url), 'utf8');
}

async function render(content: Content): Promise<Representation> {
  return Representation.ofDocument(await content.render());
}
