import { apiRoutes } from '../app.ts';
import type { AuthParts } from '../auth/auth-services.ts';
import type { TenantRoute } from '../tenancy/define-route.ts';

/**
 * Every endpoint, to be read about and not to be called: a route keeps what its handler works with for the day that it
 * runs, so that nothing of a running service is needed to make it.
 */
export function routesToRead(): TenantRoute[] {
  return apiRoutes({} as AuthParts);
}
