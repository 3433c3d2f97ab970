import { createSecretKey, type KeyObject } from 'node:crypto';
import type { Logger } from 'pino';
import { describeError } from '../lib/log/describe-error.ts';
import { problem } from '../lib/problems.ts';
import { type ControlDatabase, queryControl } from './database.ts';
import type { TenantRecord } from './records.ts';
import { owners, type SecretBox, signingKeyBytes } from './secret-box.ts';
import { databaseUrl } from './server-urls.ts';
import { keyRetirementSeconds } from './token-lifetime.ts';

export interface TenantLoaderOptions {
  control: ControlDatabase;
  secrets: SecretBox;
  /** URL of the control database: its server also holds tenants. */
  controlUrl: string;
  log: Logger;
}

/** A tenant as it is stored. */
interface TenantRow
  extends Omit<
    TenantRecord,
    'appUrl' | 'passwordUsers' | 'serverIdentity' | 'databaseUrl' | 'keys' | 'activeKid'
  > {
  readonly appUrl: string | null;
  readonly passwordUsers: readonly number[] | null;
  readonly serverIdentity: string | null;
  readonly roleName: string;
  readonly rolePassword: Buffer;
  readonly serverName: string;
  readonly serverAddress: string | null;
  readonly onControlServer: boolean;
  readonly keys: readonly { kid: string; secret: string; active: boolean }[];
}

// No token is still valid of a key that retired more than `keyRetirementSeconds` ago.
const tenants = `
  select t.id::float8 as id, t.guid, t.slug, t.name,
         array(select slug from tenant_slugs where tenant_guid = t.guid and alias_until is not null) as "formerSlugs",
         app_id as "appId", app_url as "appUrl", passkey_origins as "passkeyOrigins", features, t.status,
         (select to_json(except_users) from sign_in_rules
           where tenant_id = t.id and password_logins = 'refused') as "passwordUsers",
         isolated as "isIsolated", schema_version as "schemaVersion", compatible_from as "compatibleFrom",
         database_name as "databaseName", role_name as "roleName", role_password as "rolePassword",
         s.name as "serverName", s.address as "serverAddress", s.identity as "serverIdentity",
         on_control_server as "onControlServer",
         (select coalesce(jsonb_agg(jsonb_build_object(
                   'kid', kid, 'secret', encode(secret, 'base64'), 'active', k.status = 'active')), '[]')
            from signing_keys k
           where tenant_id = t.id and (k.status = 'active'
              or k.status = 'retiring'
                 and coalesce(retired_at > now() - interval '${keyRetirementSeconds} seconds', true))) as keys
    from tenants t join servers s on s.id = server_id`;
const tenantByGuid = `${tenants} where guid = $1`;
const activeTenants = `${tenants} where t.status = 'active' limit $1`;

/**
 * Loads a tenant and opens its secrets. Returns undefined when there is no such tenant.
 * @throws {Problem} `unavailable` when a secret cannot be opened or a key is too short: such a
 *   tenant is not served at all
 */
export async function loadTenant(
  guid: string,
  options: TenantLoaderOptions,
): Promise<TenantRecord | undefined> {
  const { control, log } = options;
  const [row] = await queryControl<TenantRow>(control, 'tenant_by_guid', tenantByGuid, [guid]);
  if (!row) return undefined;

  try {
    return openTenant(row, options);
  } catch (error) {
    log.error(
      { event: 'tenant_secrets_unusable', tenant: guid, err: describeError(error) },
      'the tenant is not served: one of its secrets cannot be opened, or its server has no address',
    );
    throw problem('unavailable', { cause: error });
  }
}

/**
 * Loads active tenants, at most `max`. Leaves out those that `loadTenant` would report as not
 * served.
 */
export async function loadActiveTenants(
  max: number,
  options: TenantLoaderOptions,
): Promise<TenantRecord[]> {
  const rows = await queryControl<TenantRow>(options.control, 'active_tenants', activeTenants, [
    max,
  ]);
  return rows.flatMap(row => {
    try {
      return [openTenant(row, options)];
    } catch {
      return [];
    }
  });
}

/** @throws when a secret cannot be opened, or the tenant's server has no address */
function openTenant(
  {
    roleName,
    rolePassword,
    serverName,
    serverAddress,
    onControlServer,
    keys,
    ...tenant
  }: TenantRow,
  { controlUrl, secrets }: TenantLoaderOptions,
): TenantRecord {
  const { guid } = tenant;
  const password = secrets.open(rolePassword, owners.rolePassword(guid)).toString();
  const serverUrl = onControlServer ? controlUrl : serverAddress;
  if (serverUrl === null) {
    throw new Error(`server ${serverName} has no address; run: bin/backoffice control migrate`);
  }

  return {
    ...tenant,
    appUrl: tenant.appUrl ?? undefined,
    passwordUsers: tenant.passwordUsers ? new Set(tenant.passwordUsers) : undefined,
    serverIdentity: tenant.serverIdentity ?? undefined,
    databaseUrl: databaseUrl(serverUrl, tenant.databaseName, { user: roleName, password }),
    keys: new Map(keys.map(({ kid, secret }) => [kid, openKey(kid, secret, guid, secrets)])),
    activeKid: keys.find(({ active }) => active)?.kid,
  };
}

function openKey(kid: string, secret: string, guid: string, secrets: SecretBox): KeyObject {
  const bytes = secrets.open(Buffer.from(secret, 'base64'), owners.signingKey(guid, kid));
  if (bytes.length < signingKeyBytes) {
    throw new Error(`signing key ${kid} is shorter than ${signingKeyBytes} bytes`);
  }
  return createSecretKey(bytes);
}
