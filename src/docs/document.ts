import { apiRoutes } from '../app.ts';
import type { AuthParts } from '../auth/routes.ts';
import type { TenantRoute } from '../tenancy/define-route.ts';
import { openApiDocument } from './openapi.ts';
import { apiVersion } from './pages.ts';

/**
 * Every endpoint, to be read about and not to be called: a route keeps what its handler works with for the day that it
 * runs, so that nothing of a running service is needed to make it.
 */
export function routesToRead(): TenantRoute[] {
  return apiRoutes({} as AuthParts);
}

/** The OpenAPI document of this build, as text: byte for byte what a service answers at `/docs/openapi.json`. */
export function writtenDocument(): string {
  return `${JSON.stringify(openApiDocument(routesToRead(), apiVersion), null, 2)}\n`;
}
