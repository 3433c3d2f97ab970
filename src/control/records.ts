import type { KeyObject } from 'node:crypto';
import type { TenantStatus } from './control-entities.ts';
import type { SchemaVersion } from './schema-version.ts';
import type { Scope } from './scopes.ts';

/**
 * A tenant as a request needs it: its identity, its opened signing keys and the URL of its
 * database.
 */
export interface TenantRecord extends SchemaVersion {
  readonly id: number;
  readonly guid: string;
  readonly slug: string;
  /** Slugs that it had before, also those that lead nowhere any more. */
  readonly formerSlugs: readonly string[];
  readonly name: string;
  readonly appId: string;
  /**
   * The address of the pages that links in its mails lead to, with placeholders; undefined =
   * that of all tenants.
   */
  readonly appUrl: string | undefined;
  /** The origins of pages with passkeys, beside that of `appUrl`. */
  readonly passkeyOrigins: readonly string[];
  /** The users who alone may log in by a password or a passkey; undefined: everybody. */
  readonly passwordUsers: ReadonlySet<number> | undefined;
  readonly features: readonly string[];
  readonly status: TenantStatus;
  /** True for a tenant that sends no mail, and whose legacy clients get no access. */
  readonly isIsolated: boolean;
  /**
   * The server that the database is on, whatever its address; undefined when it is not known.
   */
  readonly serverIdentity: string | undefined;
  readonly databaseName: string;
  /**
   * Contains the tenant's own login role, which can connect to this database and to no other.
   */
  readonly databaseUrl: string;
  /** The keys that verify tokens (active and retiring), by `kid`. */
  readonly keys: ReadonlyMap<string, KeyObject>;
  /** The key that signs tokens; undefined when the tenant has no active key. */
  readonly activeKid: string | undefined;
}

export interface SessionRecord {
  readonly id: string;
  readonly tenantId: number;
  readonly userId: number;
  /**
   * True also if the identity that opened it is gone or held, or its provider disabled, or if the
   * hours of the provider had passed when the record was loaded.
   */
  readonly revoked: boolean;
  /** The proofs of the person, by RFC 8176: `pwd`, `otp`, `pop`, `user`; `idp`: by a provider. */
  readonly methods: readonly string[];
  /** The identity at a provider, by which the person has logged in; undefined: by none. */
  readonly identityId: number | undefined;
  /** True if the provider has asked for a second factor, as far as it still counts. */
  readonly idpIsFactor: boolean;
  /** The time at which a session of an identity ends, in ms since 1970; undefined: of none. */
  readonly endsAt: number | undefined;
  /** True if new passwords of an account without a second factor have to be longer. */
  readonly passwordIsShort: boolean;
}

/** The key of a program. It stands where the session of a person does. */
export interface ProgramKeyRecord {
  readonly id: string;
  /**
   * The name under which the directory has found it: the hash of the key, in the notation of
   * PostgreSQL for `bytea`, or its id.
   */
  readonly name: string;
  readonly tenantId: number;
  readonly tenantGuid: string;
  readonly userId: number;
  /** Milliseconds since 1970. */
  readonly expiresAt: number;
  readonly revoked: boolean;
}

export interface UserRecord {
  readonly id: number;
  readonly guid: string;
  /** True for a program, which is a user without a person. */
  readonly isProgram: boolean;
  /** The networks, in CIDR notation, from which its keys are accepted; empty: from everywhere. */
  readonly networks: readonly string[];
  readonly tenantId: number;
  readonly email: string;
  readonly firstName: string;
  readonly lastName: string;
  readonly roleId: number;
  readonly scope: Scope;
  readonly entityId: number | null;
  /** The time at which that entity was created, in ISO 8601 with microseconds. */
  readonly entitySince: string | null;
  readonly disabled: boolean;
}

export interface RoleRecord {
  readonly id: number;
  readonly name: string;
  readonly permissions: ReadonlySet<string>;
  /** True if a session of a person with this role needs a second factor. */
  readonly requiresSecondFactor: boolean;
}

export interface LegacyTokenRecord {
  readonly tenantGuid: string;
  readonly userId: number;
  readonly entityType: 'supplier' | 'customer' | null;
  /** Milliseconds since 1970. */
  readonly expiresAt: number;
  readonly revoked: boolean;
}

/**
 * The records that identify the holder of an access token and decide what the holder may do.
 */
export interface CallerRecords {
  readonly tenant: TenantRecord;
  readonly session: SessionRecord | ProgramKeyRecord;
  readonly user: UserRecord;
  readonly role: RoleRecord;
}
