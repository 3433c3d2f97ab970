import { z } from 'zod';
import { scopes } from '../control/scopes.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import { entityType } from './issue-tokens.ts';

const currentUser = z
  .object({
    tokenId: z.string(),
    userGuid: z.string(),
    firstName: z.string(),
    lastName: z.string(),
    tenantId: z.int(),
    tenantGuid: z.string(),
    tenantName: z.string(),
    appId: z.string(),
    userEntityId: z.int().nullable(),
    role: z.string(),
    entityType,
    scope: z.enum(scopes),
    permissions: z.array(z.string()),
    features: z.array(z.string()),
  })
  .meta({ title: 'CurrentUser' });

/** Returns the caller, their tenant, role and permissions. */
export function me(): TenantRoute {
  return defineRoute({
    method: 'GET',
    path: '/api/v1/auth/me',
    access: 'user',
    tag: 'Authentication',
    summary: 'The current user, tenant, role and permissions',
    response: currentUser,
    handler: async (_input, { caller, tenant }) => ({
      tokenId: caller.tokenId,
      userGuid: caller.userGuid,
      firstName: caller.firstName,
      lastName: caller.lastName,
      tenantId: tenant.id,
      tenantGuid: tenant.guid,
      tenantName: tenant.name,
      appId: tenant.appId,
      userEntityId: caller.entityId,
      role: caller.role,
      entityType: caller.entityType,
      scope: caller.scope,
      permissions: [...caller.permissions],
      features: [...tenant.features],
    }),
  });
}
