import { defineEntity, p } from '@mikro-orm/postgresql';
import { migrationRunEntities } from './migration-run.ts';

/** A PostgreSQL server that tenants are placed on. */
const ServerSchema = defineEntity({
  name: 'Server',
  tableName: 'servers',
  properties: {
    id: p.integer().primary(),
    name: p.text().unique(),
    /** Begins the name of every database and role that this installation makes on the server. */
    prefix: p.text(),
    /** Sealed; null: the server that the control database itself is on. */
    adminUrl: p.blob().nullable(),
    /** Most tenants placed there without being asked for by name; null: no limit. */
    capacity: p.integer().nullable(),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
export class Server extends ServerSchema.class {}
ServerSchema.setClass(Server);

export const tenantStatuses = ['provisioning', 'active', 'suspended', 'deleted'] as const;
export type TenantStatus = (typeof tenantStatuses)[number];

/** A customer organisation, with a database of its own. */
const TenantSchema = defineEntity({
  name: 'Tenant',
  tableName: 'tenants',
  properties: {
    id: p.bigint('number').primary(),
    guid: p.uuid().defaultRaw('gen_random_uuid()').unique(),
    slug: p.text().unique(),
    name: p.text(),
    appId: p.text(),
    features: p.array().default([]),
    status: p.text().$type<TenantStatus>().default('provisioning'),
    server: () => p.manyToOne(Server),
    databaseName: p.text().unique(),
    roleName: p.text(),
    /** Sealed. */
    rolePassword: p.blob(),
    /** The last migration its database has, as the control database knows it. */
    schemaVersion: p.text().nullable(),
    /** Of its database, when that was last compared with the template. */
    schemaFingerprint: p.text().nullable(),
    createdAt: p.datetime().defaultRaw('now()'),
    updatedAt: p
      .datetime()
      .defaultRaw('now()')
      .onUpdate(() => new Date()),
  },
});
export class Tenant extends TenantSchema.class {}
TenantSchema.setClass(Tenant);

/** A tenant's HS512 secret. Active: signs and verifies. Retiring: verifies. Disabled: neither. */
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

/** A named set of permissions of one tenant. */
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

export const scopes = ['Self', 'All'] as const;
/** What a user reaches: data of the own business entity, or of all of the tenant. */
export type Scope = (typeof scopes)[number];

/** Who logs in. */
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
    /** The business entity in the tenant's own database. */
    entityId: p.bigint('number').nullable(),
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
    /** How often its refresh token was rotated; only the token of the present generation is good. */
    refreshGeneration: p.integer().default(0),
    createdAt: p.datetime().defaultRaw('now()'),
    refreshedAt: p.datetime().defaultRaw('now()'),
    revokedAt: p.datetime().nullable(),
    revokedReason: p.text().nullable(),
  },
});
export class Session extends SessionSchema.class {}
SessionSchema.setClass(Session);

/** A token sent by mail; only its hash is kept, and only the newest of each purpose. */
const MailTokenSchema = defineEntity({
  name: 'MailToken',
  tableName: 'mail_tokens',
  properties: {
    /** SHA-256 of the token. */
    hash: p.blob().primary(),
    tenant: () => p.manyToOne(Tenant),
    user: () => p.manyToOne(User),
    purpose: p.text().$type<'confirm' | 'reset'>(),
    expiresAt: p.datetime(),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
export class MailToken extends MailTokenSchema.class {}
MailTokenSchema.setClass(MailToken);

/** An old program that acts for a user. */
const ApiClientSchema = defineEntity({
  name: 'ApiClient',
  tableName: 'api_clients',
  properties: {
    id: p.text().primary(),
    tenant: () => p.manyToOne(Tenant),
    user: () => p.manyToOne(User),
    name: p.text(),
    /** SHA-256; the secret is random, so it needs no slow hash. */
    secretHash: p.blob(),
    createdAt: p.datetime().defaultRaw('now()'),
    revokedAt: p.datetime().nullable(),
  },
});
export class ApiClient extends ApiClientSchema.class {}
ApiClientSchema.setClass(ApiClient);

/** What such a program calls with. */
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

export const controlEntities = [
  Server,
  Tenant,
  SigningKey,
  Role,
  User,
  Session,
  MailToken,
  ApiClient,
  LegacyToken,
  ...migrationRunEntities,
];
