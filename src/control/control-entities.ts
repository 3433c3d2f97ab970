import { defineEntity, p } from '@mikro-orm/postgresql';
import type { Scope } from './scopes.ts';

/** A PostgreSQL server that tenants are placed on. */
const ServerSchema = defineEntity({
  name: 'Server',
  tableName: 'servers',
  properties: {
    id: p.integer().primary(),
    name: p.text().unique(),
    /**
     * The names of all databases and roles that this installation creates on the server start
     * with it.
     */
    prefix: p.text(),
    /**
     * Sealed; only the command line opens it. Null means the server of the control database.
     */
    adminUrl: p.blob().nullable(),
    /** `adminUrl` without its login, for the service. */
    address: p.text().nullable(),
    /**
     * Maximum number of tenants that are placed here automatically; null: no limit. It does not
     * limit an explicit `--server`.
     */
    capacity: p.integer().nullable(),
    /** The size of its disk in GiB, as an operator has stated it; null: not stated. */
    diskGb: p.integer().nullable(),
    /**
     * The identity of the server that the URL leads to (`readServerIdentity`); null: not known
     * yet.
     */
    identity: p.text().nullable(),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
export class Server extends ServerSchema.class {}
/** A server, for the names of its databases and roles: each begins with the prefix. */
export type Prefixed = Pick<Server, 'prefix'>;
ServerSchema.setClass(Server);

const tenantStatuses = ['provisioning', 'active', 'suspended', 'deleted'] as const;
export type TenantStatus = (typeof tenantStatuses)[number];

/** A customer organisation with its own database. */
const TenantSchema = defineEntity({
  name: 'Tenant',
  tableName: 'tenants',
  properties: {
    id: p.bigint('number').primary(),
    guid: p.uuid().defaultRaw('gen_random_uuid()').unique(),
    slug: p.text().unique(),
    name: p.text(),
    appId: p.text(),
    /**
     * The address that links in its mails lead to, with placeholders; null: that of all
     * tenants.
     */
    appUrl: p.text().nullable(),
    features: p.array().default([]),
    status: p.text().$type<TenantStatus>().default('provisioning'),
    server: () => p.manyToOne(Server),
    databaseName: p.text().unique(),
    roleName: p.text(),
    /** Sealed. */
    rolePassword: p.blob(),
    /** The last migration of the tenant's database that the control database knows of. */
    schemaVersion: p.text().nullable(),
    /** The oldest build that can serve `schemaVersion`, by its last migration. */
    compatibleFrom: p.text().nullable(),
    /** Fingerprint of its schema when it was last compared with the template. */
    schemaFingerprint: p.text().nullable(),
    /** True for a tenant that sends no mail, and whose legacy clients get no access. */
    isIsolated: p.boolean().name('isolated').default(false),
    createdAt: p.datetime().defaultRaw('now()'),
    updatedAt: p
      .datetime()
      .defaultRaw('now()')
      .onUpdate(() => new Date()),
  },
});
export class Tenant extends TenantSchema.class {}
TenantSchema.setClass(Tenant);

/**
 * A tenant's HS512 secret. An active key signs and verifies, a retiring key only verifies, a
 * disabled key does neither.
 */
const SigningKeySchema = defineEntity({
  name: 'SigningKey',
  tableName: 'signing_keys',
  properties: {
    kid: p.text().primary(),
    tenant: () => p.manyToOne(Tenant),
    /** Sealed. */
    secret: p.blob(),
    status: p.text().$type<'active' | 'retiring' | 'disabled'>().default('active'),
    createdAt: p.datetime().defaultRaw('now()'),
    retiredAt: p.datetime().nullable(),
  },
});
export class SigningKey extends SigningKeySchema.class {}
SigningKeySchema.setClass(SigningKey);

/** A named set of permissions, defined per tenant. */
const RoleSchema = defineEntity({
  name: 'Role',
  tableName: 'roles',
  properties: {
    id: p.bigint('number').primary(),
    tenant: () => p.manyToOne(Tenant),
    name: p.text(),
    permissions: p.array().default([]),
  },
});
export class Role extends RoleSchema.class {}
RoleSchema.setClass(Role);

/** A person who logs in, or for whom an API client acts. */
const UserSchema = defineEntity({
  name: 'User',
  tableName: 'users',
  properties: {
    id: p.bigint('number').primary(),
    guid: p.uuid().defaultRaw('gen_random_uuid()').unique(),
    tenant: () => p.manyToOne(Tenant),
    /** Normalised: NFC, ASCII letters in lower case. */
    email: p.text(),
    passwordHash: p.text(),
    firstName: p.text(),
    lastName: p.text(),
    role: () => p.manyToOne(Role),
    scope: p.text().$type<Scope>().default('Self'),
    /** Id of the business entity in the tenant database. */
    entityId: p.bigint('number').nullable(),
    /** The time at which that entity was created, in ISO 8601 with microseconds. */
    entitySince: p.string().columnType('timestamptz').nullable(),
    /**
     * Time of the last invitation; null for a user who registered or was added by an operator.
     */
    invitedAt: p.datetime().nullable(),
    confirmedAt: p.datetime().nullable(),
    disabledAt: p.datetime().nullable(),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
export class User extends UserSchema.class {}
UserSchema.setClass(User);

/** One login, until it is revoked or expires. */
const SessionSchema = defineEntity({
  name: 'Session',
  tableName: 'sessions',
  properties: {
    id: p.uuid().primary().defaultRaw('gen_random_uuid()'),
    tenant: () => p.manyToOne(Tenant),
    user: () => p.manyToOne(User),
    /**
     * The number of rotations of the refresh token. Only the token of the current generation is
     * valid.
     */
    refreshGeneration: p.integer().default(0),
    createdAt: p.datetime().defaultRaw('now()'),
    refreshedAt: p.datetime().defaultRaw('now()'),
    revokedAt: p.datetime().nullable(),
    revokedReason: p.text().nullable(),
  },
});
export class Session extends SessionSchema.class {}
SessionSchema.setClass(Session);

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
