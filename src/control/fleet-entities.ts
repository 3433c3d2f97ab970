import { defineEntity, p } from '@mikro-orm/postgresql';

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
