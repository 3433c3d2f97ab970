import { activityRoutes } from './activity/activity.ts';
import { auditRoutes } from './audit/audit-log.ts';
import { authRoutes } from './auth/auth-routes.ts';
import type { AuthServices } from './auth/auth-services.ts';
import { changeRoutes } from './events/change-routes.ts';
import type { ChangeStreams } from './events/change-streams.ts';
import { type ImportServices, importRoutes } from './imports/import-routes.ts';
import { roleRoutes, userRoutes } from './people/people-routes.ts';
import { resources } from './resources/index.ts';
import type { TenantRoute } from './tenancy/define-route.ts';
import { usageRoutes } from './usage/usage-routes.ts';
import { webhookActionRoutes } from './webhooks/webhook-action-routes.ts';
import { webhookRoutes } from './webhooks/webhook-routes.ts';
import type { WebhookServices } from './webhooks/webhook-services.ts';

/** The services that the routes use. */
export interface RouteServices extends AuthServices, ImportServices, WebhookServices {
  changeStreams: ChangeStreams;
}

/** Every endpoint of the API. */
export function apiRoutes(parts: RouteServices): TenantRoute[] {
  return [
    ...authRoutes(parts),
    ...userRoutes(parts),
    ...roleRoutes(parts),
    ...resources.flatMap(resource => resource.routes),
    ...importRoutes(parts),
    ...webhookRoutes(parts),
    ...webhookActionRoutes(parts),
    ...activityRoutes(parts),
    ...auditRoutes(parts),
    ...changeRoutes(parts),
    ...usageRoutes(parts),
  ];
}

/**
 * Returns every endpoint, for documentation only. The definitions need no services: a handler reads them when it runs.
 */
export function documentedRoutes(): TenantRoute[] {
  return apiRoutes({} as RouteServices);
}
