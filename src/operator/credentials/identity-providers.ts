import { noPassword } from '../../accounts/auth/passwords.ts';
import type { ControlStatements, Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { readTenant } from '../registry/read-tenants.ts';
import { findTenant } from '../registry/tenants.ts';
import { changePeopleOf } from './change-people-of.ts';

/** A provider as the command line shows it. */
export interface ProviderSummary {
  /** The number by which commands and the API name it. */
  id: number;
  guid: string;
  name: string;
  issuer: string;
  clientIds: string[];
  state: 'enabled' | 'disabled';
  sessionHours: number;
  /** True if people whom it knows get an account at their first login. */
  makesAccounts: boolean;
  /** The accounts that can log in by it. */
  people: number;
  /** Those of them that have no password. */
  withoutPassword: number;
  /** When a process has last read its metadata and keys; null: none has. */
  reachedAt: string | null;
  /** Why they cannot be read since; null: they can. */
  failure: string | null;
}

/** Returns the providers of a tenant, ordered by name. */
export async function listProviders(
  { statements }: ControlStatements,
  slug: string,
): Promise<ProviderSummary[]> {
  const { id } = await readTenant({ statements }, slug);
  const { rows } = await statements.query<ProviderSummary>(
    `select p.id::float8 as id, p.guid, p.name, p.issuer, p.client_ids as "clientIds",
            case when p.is_enabled then 'enabled' else 'disabled' end as state, p.session_hours as "sessionHours",
            p.creates_role_id is not null as "makesAccounts",
            count(distinct u.id)::int as people,
            (count(distinct u.id) filter (where u.password_hash = '${noPassword}'))::int as "withoutPassword",
            ${isoTime('s.reached_at')} as "reachedAt",
            case when s.failing_since is not null then s.failure end as failure
       from identity_providers p
       left join provider_states s on s.provider_id = p.id
       left join identities i on i.tenant_id = p.tenant_id and i.provider_id = p.id
       left join users u on u.tenant_id = i.tenant_id and u.id = i.user_id
      where p.tenant_id = $1 group by p.id, s.provider_id order by p.name, p.id`,
    [id],
  );

  return rows;
}

const disable = 'update identity_providers set is_enabled = false where id = $1 and is_enabled';

/**
 * Disables a provider of a tenant: its sign-ins are refused, and the sessions that it has opened
 * have ended. The administrators of the tenant get a mail.
 * @param isDryRun true to return the provider, and to change nothing
 * @returns the provider as it was before
 * @throws {OperatorError} when the tenant has no such provider
 */
export async function disableProvider(
  installation: Installation,
  slug: string,
  id: number,
  isDryRun = false,
): Promise<ProviderSummary> {
  const tenant = await findTenant(installation, slug);
  const provider = (await listProviders(installation, slug)).find(each => each.id === id);
  if (!provider) {
    throw new OperatorError(
      `${slug} has no provider ${id}. List its providers: bin/backoffice identity-provider list ${slug}`,
    );
  }

  await changePeopleOf(installation, tenant, {
    change: ({ query }) => query('disable_provider', disable, [id]),
    isDryRun,
  });
  return provider;
}
