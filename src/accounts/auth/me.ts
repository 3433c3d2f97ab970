import { z } from 'zod';
import { scopes } from '../../control/scopes.ts';
import { describeFields, longId } from '../../lib/http/request/fields.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { entityType, entityTypeDescription, entityTypeOf } from './issue-tokens.ts';

const currentUser = describeFields(
  {
    tokenId: z.string(),
    userGuid: z.string(),
    firstName: z.string(),
    lastName: z.string(),
    tenantId: longId(),
    tenantGuid: z.string(),
    tenantName: z.string(),
    appId: z.string(),
    userEntityId: longId().nullable(),
    role: z.string(),
    entityType,
    scope: z.enum(scopes),
    permissions: z.array(z.string()),
    features: z.array(z.string()),
    passwordIsShort: z.literal(true).optional(),
  },
  {
    tokenId: 'The id of the access token, or of the key of a program.',
    userGuid: 'The guid of the user.',
    firstName: 'The first name of the user, or the name of a program.',
    lastName: 'The last name of the user; empty for a program.',
    tenantId: 'The number of the tenant.',
    tenantGuid: 'The guid of the tenant, as in `X-Tenant`.',
    tenantName: 'The name of the tenant.',
    appId: 'The id of the program that the tenant uses, as the operator has set it.',
    userEntityId: 'The `Id` of the entity that the user belongs to; null if it is none.',
    role: 'The name of the role of the user.',
    entityType: entityTypeDescription,
    scope: 'Whether the user accesses the data of every entity, or of the own entity only.',
    permissions: 'What the user may do. The reference names the permission that an endpoint needs.',
    features: 'What the operator has switched on for the tenant.',
    passwordIsShort:
      'Only if true: the password that this session was opened with is shorter than a new one ' +
      'has to be. It stays good; ask the person to set a longer one.',
  },
).meta({ title: 'CurrentUser' });

/** Returns the caller, their tenant, role and permissions. */
export function me(): TenantRoute {
  return defineRoute({
    method: 'GET',
    path: '/api/v1/auth/me',
    access: 'user',
    tag: 'Authentication',
    summary: 'The current user, tenant, role and permissions',
    response: currentUser,
    handler: async (_input, context) => {
      const { caller, tenant } = context;
      // The access token of a person has the type of the login; a program has not logged in.
      const { program } = caller;
      const entityType = program ? await entityTypeOf(caller, context) : caller.entityType;

      return {
        ...caller, // the response has the fields of `currentUser` only
        entityType,
        tenantId: tenant.id,
        tenantGuid: tenant.guid,
        tenantName: tenant.name,
        appId: tenant.appId,
        userEntityId: caller.entityId,
        permissions: [...caller.permissions],
        features: [...tenant.features],
      };
    },
  });
}
