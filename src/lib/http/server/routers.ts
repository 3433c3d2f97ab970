import Router from '@koa/router';
import type { HttpMiddleware, RequestState } from '../../request-state.ts';

/** Finds the route of a request. */
export type Routers = ReturnType<typeof createRouters>;

type ApiRouter = Router<RequestState>;

interface MountedRoute {
  readonly method: string;
  /**
   * In @koa/router's syntax. The first three segments must not be parameters:
   * `/api/v1/Currency/:id`.
   */
  readonly path: string;
  readonly handle: HttpMiddleware;
}

/**
 * Mounts routes. An @koa/router tries all its routes one by one, so each prefix of three
 * segments has a router of its own, which one look-up finds.
 */
export function createRouters(routes: readonly MountedRoute[]) {
  const routers = new Map<string, { router: ApiRouter; dispatch: HttpMiddleware }>();

  for (const { method, path, handle } of routes) {
    const prefix = prefixOf(path);
    if (!prefix || prefix.includes(':')) {
      throw new Error(`${path} does not begin with three fixed segments`);
    }
    const router =
      routers.get(prefix)?.router ?? new Router<RequestState>({ sensitive: true, strict: true });
    router.register(path, [method], handle);
    routers.set(prefix, { router, dispatch: router.routes() as HttpMiddleware });
  }

  /** Calls the handler of the matching route, or `next` when no route matches. */
  const dispatch: HttpMiddleware = (ctx, next) => {
    const router = routers.get(prefixOf(ctx.path));
    return router ? router.dispatch(ctx, next) : next();
  };

  return {
    dispatch,

    /**
     * Returns path pattern and methods of every route that matches a path, whatever the method
     * of the request.
     */
    ofPath: (path: string): { path: string; methods: readonly string[] }[] => {
      const layers = routers.get(prefixOf(path))?.router.match(path, '').path ?? [];
      return layers.map(layer => ({ path: String(layer.path), methods: layer.methods }));
    },
  };
}

/** Returns the first three segments of a path; '' when there are fewer. */
function prefixOf(path: string): string {
  return /^(?:\/[^/]*){3}/.exec(path)?.[0] ?? '';
}
