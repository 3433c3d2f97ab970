import Router from '@koa/router';
import type { Middleware } from 'koa';

/** The routes of an API. */
export interface Routers {
  /** Calls the route that a request is for, or `next` when there is none. */
  readonly dispatch: Middleware;
  /** The routes of a path, by whatever method: as they are written, and the methods that each answers. */
  ofPath(path: string): { path: string; methods: readonly string[] }[];
}

interface Mounted {
  readonly method: string;
  /** In @koa/router's form, with three segments at least that are no parameters: `/api/v1/Currency/:id`. */
  readonly path: string;
  readonly handle: Middleware;
}

/**
 * Mounts routes. A router tries all its routes for every request, so there is one for each beginning of a path that
 * routes share, found without a search.
 */
export function createRouters(routes: readonly Mounted[]): Routers {
  const routers = new Map<string, { router: Router; dispatch: Middleware }>();
  for (const { method, path, handle } of routes) {
    const begin = beginning(path);
    if (!begin || begin.includes(':')) throw new Error(`${path} does not begin with three segments that are fixed`);
    const router = routers.get(begin)?.router ?? new Router({ sensitive: true, strict: true });
    router.register(path, [method], handle);
    routers.set(begin, { router, dispatch: router.routes() as unknown as Middleware });
  }
  return {
    dispatch: (ctx, next) => {
      const found = routers.get(beginning(ctx.path));
      return found ? found.dispatch(ctx, next) : next();
    },
    ofPath: path => {
      const layers = routers.get(beginning(path))?.router.match(path, '').path ?? [];
      return layers.map(layer => ({ path: String(layer.path), methods: layer.methods }));
    },
  };
}

/** The first three segments of a path. */
function beginning(path: string): string {
  return /^(?:\/[^/]*){3}/.exec(path)?.[0] ?? '';
}
