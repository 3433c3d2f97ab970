import { z } from 'zod';
import { problem } from '../errors.ts';
import { Entity } from '../resources/entity.ts';
import type { RequestContext } from '../tenancy/context.ts';
import { signAccessToken } from './access-token.ts';
import { type RefreshToken, writeRefreshToken } from './refresh-token.ts';
import type { AuthParts } from './routes.ts';

export const entityType = z.enum(['supplier', 'customer']).nullable();

/** `entityType` is null for a user who belongs to no entity. */
export const loginResponse = z.object({ accessToken: z.string(), refreshToken: z.string(), entityType });

/** The pair of tokens for a user's session, with the permissions of the role and the type of the entity as of now. */
export async function issueTokens(
  { directory, secrets, tokens }: AuthParts,
  context: RequestContext,
  userId: number,
  session: RefreshToken,
): Promise<z.input<typeof loginResponse>> {
  const user = await directory.user(userId);
  const role = user && (await directory.role(user.roleId));
  if (!user || user.disabled || !role) throw problem('invalid_credentials');
  const entity = user.entityId === null ? null : await (await context.em()).findOne(Entity, { id: user.entityId });
  const accessToken = signAccessToken(
    context.tenant,
    {
      user_guid: user.guid,
      email: user.email,
      permissions: [...role.permissions],
      entity_type: entity?.entityType ?? null,
      sid: session.sessionId,
    },
    tokens,
  );
  return {
    accessToken,
    refreshToken: writeRefreshToken(session, context.tenant.guid, secrets),
    entityType: entity?.entityType ?? null,
  };
}
