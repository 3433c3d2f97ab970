import { defineEntity, p } from '@mikro-orm/postgresql';
import { Tenant } from './fleet-entities.ts';
import type { Scope } from './scopes.ts';

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
    /** Time of the last invitation; null for a user who registered or was added by an operator. */
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
    /** How often the refresh token was rotated. Only the token of the current generation is valid. */
    refreshGeneration: p.integer().default(0),
    createdAt: p.datetime().defaultRaw('now()'),
    refreshedAt: p.datetime().defaultRaw('now()'),
    revokedAt: p.datetime().nullable(),
    revokedReason: p.text().nullable(),
  },
});
export class Session extends SessionSchema.class {}
SessionSchema.setClass(Session);
