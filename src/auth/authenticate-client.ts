import { createHash, timingSafeEqual } from 'node:crypto';
import type { Middleware } from 'koa';
import { ApiClient } from '../control/control-entities.ts';
import { type Problem, problem } from '../errors.ts';
import { bindCaller, bindTenant } from '../tenancy/bind-request.ts';
import type { ContextServices } from '../tenancy/request-context.ts';
import type { AuthServices } from './auth-services.ts';
import { loadCaller, requireLegacyTokens, setSunsetHeaders } from './authenticate.ts';

/**
 * Authenticates an API client by `Authorization: Basic` (RFC 7617), and binds its tenant and its user, as the caller,
 * to the request.
 */
export function authenticateClient(services: AuthServices & ContextServices): Middleware {
  const { control, directory } = services;
  return async (ctx, next) => {
    setSunsetHeaders(ctx);
    const client = await findClient(control, ctx.req.headers.authorization ?? '');
    const tenant = client && (await directory.tenant(client.tenant.guid));
    if (!client || !tenant) throw basicAuthRequired();
    if (tenant.status !== 'active') throw problem('tenant_inactive');
    requireLegacyTokens(tenant);
    bindTenant(ctx, tenant, services);
    const caller = await loadCaller(directory, tenant, client.user.id, {
      sessionId: '',
      tokenId: client.id,
      entityType: null,
    });
    if (!caller) throw basicAuthRequired();
    bindCaller(ctx, caller);
    await next();
  };
}

/** The same problem for every failure: unknown client, wrong secret, revoked client, disabled user. */
export function basicAuthRequired(): Problem {
  return problem('unauthorized', {
    reason: 'client',
    headers: { 'WWW-Authenticate': 'Basic realm="API clients", charset="UTF-8"' },
  });
}

/** The hash that the secret of an unknown client is compared with, so that the check takes the same time. */
const unknownHash = createHash('sha256').digest();

async function findClient(control: AuthServices['control'], authorization: string): Promise<ApiClient | undefined> {
  const encoded = /^Basic +([A-Za-z0-9+/=]+) *$/i.exec(authorization)?.[1];
  const [, id, secret] = /^([^:]*):(.*)$/s.exec(Buffer.from(encoded ?? '', 'base64').toString()) ?? [];
  if (id === undefined || secret === undefined || !/^[\w-]{1,100}$/.test(id)) return undefined;
  const client = await control.em.fork().findOne(ApiClient, { id, revokedAt: null }, { populate: ['tenant'] });
  const hash = createHash('sha256').update(secret).digest();
  return timingSafeEqual(hash, client?.secretHash ?? unknownHash) ? (client ?? undefined) : undefined;
}
