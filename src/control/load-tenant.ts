import { createSecretKey, type KeyObject } from 'node:crypto';
import { raw } from '@mikro-orm/postgresql';
import type { Logger } from 'pino';
import { problem } from '../errors.ts';
import type { ControlDatabase } from './database.ts';
import { SigningKey, Tenant, type TenantStatus } from './entities.ts';
import { owners, type SecretBox } from './secret-box.ts';
import { databaseUrl, type Servers } from './servers.ts';

/** A tenant as a request needs it: who it is, its keys opened, and the way to its database. */
export interface TenantRecord {
  readonly id: number;
  readonly guid: string;
  readonly slug: string;
  readonly name: string;
  readonly appId: string;
  readonly features: readonly string[];
  readonly status: TenantStatus;
  readonly schemaVersion: string | null;
  readonly databaseName: string;
  /** With the tenant's own login role, which reaches this database and no other. */
  readonly databaseUrl: string;
  /** Keys that verify (active and retiring), by `kid`. */
  readonly keys: ReadonlyMap<string, KeyObject>;
  /** The key that signs; undefined when the operator has disabled the last one. */
  readonly activeKid: string | undefined;
}

const leastKeyBytes = 64; // RFC 7518 §3.2: a key of the size of the hash, or larger

export interface TenantParts {
  control: ControlDatabase;
  secrets: SecretBox;
  servers: Servers;
  log: Logger;
}

/**
 * A tenant with its secrets opened; undefined when there is none.
 * @throws {Problem} `unavailable` when a secret does not open or a key is too short: then the tenant is not served at all
 */
export async function loadTenant(
  guid: string,
  { control, secrets, servers, log }: TenantParts,
): Promise<TenantRecord | undefined> {
  const em = control.em.fork();
  const tenant = await em.findOne(Tenant, { guid }, { populate: ['server'] });
  if (!tenant) return undefined;
  // A key that retired an hour ago has no token left that is good.
  const stillUsed = {
    $or: [
      { status: 'active' as const },
      { status: 'retiring' as const, [raw(`coalesce(retired_at > now() - interval '1 hour', true)`)]: [] },
    ],
  };
  const keys = await em.find(SigningKey, { tenant, ...stillUsed });
  try {
    const password = secrets.open(tenant.rolePassword, owners.rolePassword(guid)).toString();
    return {
      id: tenant.id,
      guid,
      slug: tenant.slug,
      name: tenant.name,
      appId: tenant.appId,
      features: tenant.features,
      status: tenant.status,
      schemaVersion: tenant.schemaVersion ?? null,
      databaseName: tenant.databaseName,
      databaseUrl: databaseUrl(servers.adminUrl(tenant.server), tenant.databaseName, {
        user: tenant.roleName,
        password,
      }),
      keys: new Map(keys.map(key => [key.kid, openKey(key, guid, secrets)])),
      activeKid: keys.find(key => key.status === 'active')?.kid,
    };
  } catch (error) {
    log.error(
      { event: 'tenant_secrets_unusable', tenant: guid, err: error },
      'a secret of this tenant does not open: it is not served',
    );
    throw problem('unavailable', { cause: error });
  }
}

function openKey({ kid, secret }: SigningKey, guid: string, secrets: SecretBox): KeyObject {
  const bytes = secrets.open(secret, owners.signingKey(guid, kid));
  if (bytes.length < leastKeyBytes) throw new Error(`signing key ${kid} is shorter than ${leastKeyBytes} bytes`);
  return createSecretKey(bytes);
}
