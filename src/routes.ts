import { activityRoutes } from './activity/activity.ts';
import { auditRoutes } from './audit/audit-log.ts';
import { authRoutes } from './auth/auth-routes.ts';
import type { AuthServices } from './auth/auth-services.ts';
import { resources } from './resources/index.ts';
import type { TenantRoute } from './tenancy/define-route.ts';

/** Every endpoint of the API. */
export function apiRoutes(parts: AuthServices): TenantRoute[] {
  return [
    ...authRoutes(parts),
    ...resources.flatMap(resource => resource.routes),
    ...activityRoutes(),
    ...auditRoutes(),
  ];
}

/**
 * Every endpoint, for documentation only: a route reads the services that it was given when its handler runs, so that
 * its definition needs none of them.
 */
export function documentedRoutes(): TenantRoute[] {
  return apiRoutes({} as AuthServices);
}
