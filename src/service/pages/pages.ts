import { accountAssets } from '../../accounts/account-pages/account-assets.ts';
import {
  type Content,
  contentSecurityPolicy,
  mediaTypes,
  sharedAssets,
} from '../../lib/html/assets.ts';
import { html } from '../../lib/html/html.ts';
import { Representation } from '../../lib/http/response/representation.ts';
import { sendRepresentation } from '../../lib/http/response/send-response.ts';
import { type Problem, problem } from '../../lib/problems.ts';
import type { HttpContext, HttpMiddleware } from '../../lib/request-state.ts';
import type { TenantRoute } from '../../tenancy/define-route.ts';
import { contentsByPath } from './contents.ts';
import { page, type Site } from './page.ts';

/** The pages to which short addresses redirect. */
const movedPages: Readonly<Record<string, string>> = { '/': '/docs', '/docs/guide': '/docs' };

/**
 * The paths of the documentation, its style sheets and the explorer, whether they exist or not.
 * Each segment is a plain name: neither dots nor percent-encoding leads to another path.
 */
const ownPaths = /^\/(?:docs|css|swagger)(?:\/[\w-][\w.-]*)*\/?$/;

/** The pages that a service shows: all, all but the handbook of operators, or none. */
export type ShownDocumentation = 'public' | 'api' | 'off';

/** The documentation of a service, as a part of its stack. */
export interface Documentation {
  readonly serve: HttpMiddleware;
  /** True for a request that a page, or a file of one, answers. */
  hasPage(ctx: HttpContext): boolean;
}

/**
 * Serves the documentation: pages, style sheet, OpenAPI document and Swagger UI. The paths
 * match exactly. They need no tenant and no user, and the content depends on neither. A path of
 * the documentation without a page is 404 for everybody.
 * @param base address under which clients reach the service, for the examples
 */
export function documentationPages(
  routes: readonly TenantRoute[],
  base: string,
  shown: ShownDocumentation,
): Documentation {
  const site = { base, hasHandbook: shown === 'public' };
  const contents =
    shown === 'off' ? new Map([...sharedAssets, ...accountAssets]) : contentsByPath(routes, site);

  return {
    serve: servePages(contents, site, shown),
    hasPage: ctx =>
      isRead(ctx) && (contents.has(ctx.path) || contents.has(movedPages[ctx.path] ?? '')),
  };
}

const isRead = ({ method }: HttpContext): boolean => method === 'GET' || method === 'HEAD';

function servePages(
  contents: ReadonlyMap<string, Content>,
  site: Site,
  shown: ShownDocumentation,
): HttpMiddleware {
  const rendered = new Map<string, Promise<Representation>>();

  return async function serveDocumentation(ctx, next) {
    const moved = movedPages[ctx.path];
    if (moved && contents.has(moved)) {
      if (!isRead(ctx)) throw methodNotAllowed();
      return ctx.redirect(moved);
    }

    const content = contents.get(ctx.path);
    if (shown !== 'off' && isRead(ctx) && !content && isForPerson(ctx)) {
      const path = ctx.path.replace(/\/$/, '');
      if (contents.has(path)) return ctx.redirect(path);

      ctx.status = 404;
      ctx.set('Content-Security-Policy', contentSecurityPolicy);
      ctx.type = mediaTypes.html;
      ctx.body = notFoundPage(site);
      return;
    }

    if (!content) {
      if (ownPaths.test(ctx.path)) {
        throw problem('not_found', { detail: 'No page has this path.' });
      }
      return next();
    }
    if (!isRead(ctx)) throw methodNotAllowed();

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

function methodNotAllowed(): Problem {
  return problem('method_not_allowed', { headers: { Allow: 'GET, HEAD' } });
}

/**
 * True for a path outside the API that a browser shows. All other clients get a problem, also
 * for an unknown path.
 */
function isForPerson(ctx: HttpContext): boolean {
  return !/^\/api(\/|$)/.test(ctx.path) && ctx.accepts('json', 'html') === 'html';
}

/** The page for a path that the service does not have, for people who mistyped an address. */
function notFoundPage(site: Site): string {
  const body = html`
<h1>There is no such page</h1>
<p>The documentation begins with the <a href="/docs">guide</a>. The API is under <code>/api</code>; the
<a href="/docs/reference">reference</a> lists its endpoints.</p>`;
  return page({ site, path: '', title: 'Not found', sections: [], body });
}

async function render(content: Content): Promise<Representation> {
  return Representation.ofDocument(await content.render());
}
