import { authRoutes } from '../accounts/auth/auth-routes.ts';
import type { AuthServices } from '../accounts/auth/auth-services.ts';
import { roleRoutes, userRoutes } from '../accounts/people/people-routes.ts';
import { keyRoutes } from '../accounts/programs/key-routes.ts';
import { programRoutes } from '../accounts/programs/program-routes.ts';
import { providerRoutes } from '../accounts/providers/provider-routes.ts';
import { signInRuleRoutes } from '../accounts/providers/sign-in-rules.ts';
import { activityRoutes } from '../sales/activity/activity.ts';
import { auditRoutes } from '../sales/audit/audit-log.ts';
import { changeRoutes } from '../sales/events/change-routes.ts';
import type { ChangeStreams } from '../sales/events/change-streams.ts';
import { type ImportServices, importRoutes } from '../sales/imports/import-routes.ts';
import { resources } from '../sales/resources/index.ts';
import { usageRoutes } from '../sales/usage/usage-routes.ts';
import { webhookActionRoutes } from '../sales/webhooks/webhook-action-routes.ts';
import { webhookRoutes } from '../sales/webhooks/webhook-routes.ts';
import type { WebhookServices } from '../sales/webhooks/webhook-services.ts';
import type { TenantRoute } from '../tenancy/define-route.ts';

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
    ...programRoutes(parts),
    ...providerRoutes(parts),
    ...signInRuleRoutes(parts),
    ...keyRoutes(parts),
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
 * Returns every endpoint, for documentation only. The definitions need no services: a handler
 * reads them when it runs.
 */
export function documentedRoutes(): TenantRoute[] {
  return apiRoutes({} as RouteServices);
}
