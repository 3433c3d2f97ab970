import { activityRoutes } from './activity/activity.ts';
import { auditRoutes } from './audit/audit-log.ts';
import { authRoutes } from './auth/auth-routes.ts';
import type { AuthServices } from './auth/auth-services.ts';
import { type ImportServices, importRoutes } from './imports/import-routes.ts';
import { roleRoutes } from './people/role-routes.ts';
import { userRoutes } from './people/user-routes.ts';
import { resources } from './resources/index.ts';
import type { TenantRoute } from './tenancy/define-route.ts';
import { usageRoutes } from './usage/usage-routes.ts';

/** The services that the routes use. */
export interface RouteServices extends AuthServices, ImportServices {}

/** Every endpoint of the API. */
export function apiRoutes(parts: RouteServices): TenantRoute[] {
  return [
    ...authRoutes(parts),
    ...userRoutes(parts),
    ...roleRoutes(parts),
    ...resources.flatMap(resource => resource.routes),
    ...importRoutes(parts),
    ...activityRoutes(parts),
    ...auditRoutes(parts),
    ...usageRoutes(parts),
  ];
}

/**
 * Returns every endpoint, for documentation only. The definitions need no services: a handler reads them when it runs.
 */
export function documentedRoutes(): TenantRoute[] {
  return apiRoutes({} as RouteServices);
}
