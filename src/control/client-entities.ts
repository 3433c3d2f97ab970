import { defineEntity, p } from '@mikro-orm/postgresql';
import { Tenant } from './fleet-entities.ts';
import { User } from './user-entities.ts';

/** A program written for the previous API, which acts for a user. */
const ApiClientSchema = defineEntity({
  name: 'ApiClient',
  tableName: 'api_clients',
  properties: {
    id: p.text().primary(),
    tenant: () => p.manyToOne(Tenant),
    user: () => p.manyToOne(User),
    name: p.text(),
    /** SHA-256: the secret is random, so it needs no slow hash. */
    secretHash: p.blob(),
    createdAt: p.datetime().defaultRaw('now()'),
    revokedAt: p.datetime().nullable(),
  },
});
export class ApiClient extends ApiClientSchema.class {}
ApiClientSchema.setClass(ApiClient);

/** A token that an API client sends with its requests. */
const LegacyTokenSchema = defineEntity({
  name: 'LegacyToken',
  tableName: 'legacy_tokens',
  properties: {
    /** SHA-256 of the token. */
    hash: p.blob().primary(),
    tenant: () => p.manyToOne(Tenant),
    user: () => p.manyToOne(User),
    client: () => p.manyToOne(ApiClient),
    entityType: p.text().$type<'supplier' | 'customer'>().nullable(),
    createdAt: p.datetime().defaultRaw('now()'),
    expiresAt: p.datetime(),
    revokedAt: p.datetime().nullable(),
    uses: p.bigint('number').default(0),
    lastUsedAt: p.datetime().nullable(),
  },
});
export class LegacyToken extends LegacyTokenSchema.class {}
LegacyTokenSchema.setClass(LegacyToken);
