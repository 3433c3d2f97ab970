import { createSecretKey, type KeyObject } from 'node:crypto';
import type { Logger } from 'pino';
import { problem } from '../errors.ts';
import { describeError } from '../log/describe-error.ts';
import { type ControlDatabase, queryControl } from './database.ts';
import type { TenantStatus } from './fleet-entities.ts';
import type { TenantRecord } from './records.ts';
import { owners, type SecretBox } from './secret-box.ts';
import { databaseUrl } from './server-urls.ts';
import { keyRetirementSeconds } from './token-lifetime.ts';

const minKeyBytes = 64; // RFC 7518 §3.2: the key must be at least as long as the hash

export interface TenantLoaderOptions {
  control: ControlDatabase;
  secrets: SecretBox;
  /** URL of the control database: its server also holds tenants. */
  controlUrl: string;
  log: Logger;
  /** Limit of the entries of each cache; lowered in simulations. */
  maxEntries?: number;
}

interface TenantRow {
  id: string;
  slug: string;
  name: string;
  app_id: string;
  app_url: string | null;
  features: string[];
  status: TenantStatus;
  isolated: boolean;
  schema_version: string | null;
  compatible_from: string | null;
  database_name: string;
  role_name: string;
  role_password: Buffer;
  server_name: string;
  server_address: string | null;
  server_identity: string | null;
  on_control_server: boolean;
  keys: { kid: string; secret: string; active: boolean }[];
}

// A key that retired before that time has signed no token that is still valid.
const tenantByGuid = `
  select t.id, t.slug, t.name, app_id, app_url, features, t.status, isolated, schema_version, compatible_from, database_name,
         role_name, role_password, s.name as server_name, s.address as server_address, s.identity as server_identity,
         on_control_server,
         (select coalesce(jsonb_agg(jsonb_build_object(
                   'kid', kid, 'secret', encode(secret, 'base64'), 'active', k.status = 'active')), '[]')
            from signing_keys k
           where tenant_id = t.id and (k.status = 'active'
              or k.status = 'retiring'
                 and coalesce(retired_at > now() - interval '${keyRetirementSeconds} seconds', true))) as keys
    from tenants t join servers s on s.id = server_id
   where guid = $1`;

/**
 * Loads a tenant and opens its secrets. Returns undefined when there is no such tenant.
 * @throws {Problem} `unavailable` when a secret cannot be opened or a key is too short: such a tenant is not
 *   served at all
 */
export async function loadTenant(
  guid: string,
  { control, controlUrl, secrets, log }: TenantLoaderOptions,
): Promise<TenantRecord | undefined> {
  const [tenant] = await queryControl<TenantRow>(control, 'tenant_by_guid', tenantByGuid, [guid]);
  if (!tenant) return undefined;
  try {
    const password = secrets.open(tenant.role_password, owners.rolePassword(guid)).toString();
    const serverUrl = tenant.on_control_server ? controlUrl : tenant.server_address;
    if (serverUrl === null)
      throw new Error(`server ${tenant.server_name} has no address; run: npx backoffice control migrate`);
    return {
      id: Number(tenant.id),
      guid,
      slug: tenant.slug,
      name: tenant.name,
      appId: tenant.app_id,
      appUrl: tenant.app_url ?? undefined,
      features: tenant.features,
      status: tenant.status,
      isIsolated: tenant.isolated,
      schemaVersion: tenant.schema_version,
      compatibleFrom: tenant.compatible_from,
      serverIdentity: tenant.server_identity ?? undefined,
      databaseName: tenant.database_name,
      databaseUrl: databaseUrl(serverUrl, tenant.database_name, { user: tenant.role_name, password }),
      keys: new Map(tenant.keys.map(({ kid, secret }) => [kid, openKey(kid, secret, guid, secrets)])),
      activeKid: tenant.keys.find(({ active }) => active)?.kid,
    };
  } catch (error) {
    log.error(
      { event: 'tenant_secrets_unusable', tenant: guid, err: describeError(error) },
      'the tenant is not served: one of its secrets cannot be opened, or its server has no address',
    );
    throw problem('unavailable', { cause: error });
  }
}

function openKey(kid: string, secret: string, guid: string, secrets: SecretBox): KeyObject {
  const bytes = secrets.open(Buffer.from(secret, 'base64'), owners.signingKey(guid, kid));
  if (bytes.length < minKeyBytes) throw new Error(`signing key ${kid} is shorter than ${minKeyBytes} bytes`);
  return createSecretKey(bytes);
}
