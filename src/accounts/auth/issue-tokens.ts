import { z } from 'zod';
import type { RoleRecord, SessionRecord, TenantRecord, UserRecord } from '../../control/records.ts';
import { Entity } from '../../sales/resources/entity.ts';
import { findActiveUser, hasSecondFactor } from '../../tenancy/caller.ts';
import { isSameEntity } from '../../tenancy/own-entity.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { signAccessToken } from './access-token.ts';
import type { AuthServices } from './auth-services.ts';
import { encodeRefreshToken, type RefreshToken } from './refresh-token.ts';

export const entityTypeDescription =
  'Whether the entity of the user is a supplier or a customer; null for a user without an entity.';
export const entityType = z
  .enum(['supplier', 'customer'])
  .nullable()
  .describe(entityTypeDescription);

export const loginResponse = z
  .object({
    accessToken: z
      .string()
      .describe('Send it as `Authorization: Bearer …`. It is valid for 15 minutes.'),
    refreshToken: z.string().describe('Gets the next pair of tokens, once.'),
    entityType,
  })
  .meta({ title: 'LoginResponse' });

/**
 * The user that tokens are issued to, with the current permissions of the role and the type of
 * the entity.
 */
export interface TokenHolder {
  readonly user: UserRecord;
  readonly role: RoleRecord;
  readonly permissions: string[];
  readonly entityType: z.output<typeof entityType>;
}

/** Loads the holder of new tokens; undefined when the user does not exist or is disabled. */
export async function loadTokenHolder(
  { directory }: AuthServices,
  context: RequestContext,
  userId: number,
): Promise<TokenHolder | undefined> {
  const found = await findActiveUser(directory, context.tenant.id, userId);
  if (!found) return undefined;
  const { user, role } = found;
  return {
    user,
    role,
    permissions: [...role.permissions],
    entityType: await entityTypeOf(user, context),
  };
}

/** Returns the type of the entity that a user belongs to; null if it is none. */
export async function entityTypeOf(
  { entityId, entitySince }: Pick<UserRecord, 'entityId' | 'entitySince'>,
  context: RequestContext,
) {
  const entity = entityId === null ? null : await context.em.findOne(Entity, { id: entityId });
  return entity && isSameEntity(entity, entitySince) ? entity.entityType : null;
}

/**
 * Returns an access token and a refresh token for a session.
 * @param proofs what the session has proved. The access token says it (`amr`, RFC 8176) only
 *   if it is not a password alone
 */
export function issueTokens(
  { secrets, tokens }: AuthServices,
  tenant: TenantRecord,
  { user, permissions, entityType: entity_type }: TokenHolder,
  session: RefreshToken,
  proofs: Pick<SessionRecord, 'methods' | 'idpIsFactor'>,
): z.input<typeof loginResponse> {
  const { guid: user_guid, email } = user;
  const { methods } = proofs;
  const mfa = hasSecondFactor(proofs) ? ['mfa'] : [];
  const amr = mfa.length > 0 || methods.includes('idp') ? { amr: [...methods, ...mfa] } : {};
  const claims = { user_guid, email, permissions, entity_type, sid: session.sessionId, ...amr };
  return {
    accessToken: signAccessToken(tenant, claims, tokens),
    refreshToken: encodeRefreshToken(session, tenant.guid, secrets),
    entityType: entity_type,
  };
}
