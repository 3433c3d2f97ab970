import type { TenantStatus } from '../../control/control-entities.ts';
import type { ControlStatements } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { readTenant, type TenantWithHealth } from '../registry/read-tenants.ts';
import {
  healthColumns,
  healthSql,
  type StoredHealth,
  toReasons,
} from '../registry/tenant-health.ts';

/** A user as the command line shows it. */
export interface UserSummary {
  guid: string;
  email: string;
  firstName: string;
  lastName: string;
  role: string;
  scope: string;
  entityId: number | null;
  state: 'disabled' | 'active' | 'unconfirmed';
  /** `missing`: the person must have one, and has none yet. */
  secondFactor: 'yes' | 'no' | 'missing';
  /** The state of the last mail, and its reason; null: there was none in the last weeks. */
  mail: string | null;
}

const userColumns = `
  u.guid, u.email, u.first_name as "firstName", u.last_name as "lastName", r.name as role, u.scope,
  u.entity_id::float8 as "entityId",
  case when disabled_at is not null then 'disabled' when confirmed_at is not null then 'active' else 'unconfirmed' end
    as state,
  case when exists (select from factors f
                     where f.tenant_id = u.tenant_id and f.user_id = u.id and f.confirmed_at is not null) then 'yes'
       when u.must_set_up_factor or r.requires_second_factor then 'missing' else 'no' end as "secondFactor",
  (select concat_ws(': ', m.state, m.reason)
     from (select state, reason, created_at from mail_deliveries where user_id = u.id
            union all
           select state, reason, created_at from account_notices where user_id = u.id) m
    order by m.created_at desc limit 1) as mail`;

/** Returns the people of a tenant, ordered by e-mail address. */
export async function listUsers(
  { statements }: ControlStatements,
  slug: string,
): Promise<UserSummary[]> {
  const { id } = await readTenant({ statements }, slug);
  const { rows } = await statements.query<UserSummary>(
    `select ${userColumns} from users u join roles r on r.id = u.role_id where u.tenant_id = $1 and u.kind = 'person'
      order by u.email`,
    [id],
  );

  return rows;
}

/** A user of any tenant, with the health of the tenant and its reasons. */
export interface FoundUser extends UserSummary, Pick<TenantWithHealth, 'health' | 'reasons'> {
  /** The slug of the tenant. */
  tenant: string;
  /** The state of the tenant. */
  status: TenantStatus;
}

/**
 * Returns the users of all tenants that have an address, ordered by tenant.
 * @param email as `readEmail` returns it
 */
export async function findUsers(
  { statements }: ControlStatements,
  email: string,
): Promise<FoundUser[]> {
  const picked = 'select * from tenants where id in (select tenant_id from users where email = $1)';
  const { rows } = await statements.query<Omit<FoundUser, 'reasons'> & StoredHealth>(
    `with ${await healthSql(picked)}
     select t.slug as tenant, t.status, ${healthColumns}, ${userColumns}
       from users u join roles r on r.id = u.role_id join picked t on t.id = u.tenant_id
       left join health on health.id = t.id
      where u.email = $1 order by t.slug`,
    [email],
  );

  return rows.map(({ reasons, ...user }) => ({ ...user, reasons: toReasons(reasons) }));
}

export function noSuchUser(slug: string, email: string): OperatorError {
  return new OperatorError(
    `${slug} has no user ${email}. List its users: bin/backoffice user list ${slug}`,
  );
}

/** An API client: a program that acts for a user with legacy tokens. */
export interface ClientSummary {
  id: string;
  name: string;
  /** The e-mail address of its user. */
  user: string;
  state: 'active' | 'revoked';
  tokens: number;
  /** The number of uses of the client's tokens. */
  uses: number;
  lastUsedAt: string | null;
}

/** Returns the API clients of a tenant, oldest first. */
export async function listClients(
  { statements }: ControlStatements,
  slug: string,
): Promise<ClientSummary[]> {
  const { id } = await readTenant({ statements }, slug);
  const { rows } = await statements.query<ClientSummary>(
    `select c.id, c.name, u.email as "user", case when c.revoked_at is null then 'active' else 'revoked' end as state,
            count(t.hash)::int as tokens, coalesce(sum(t.uses), 0)::float8 as uses,
            ${isoTime('max(t.last_used_at)')} as "lastUsedAt"
       from api_clients c join users u on u.id = c.user_id left join legacy_tokens t on t.client_id = c.id
      where c.tenant_id = $1 group by c.id, u.email order by c.created_at, c.id`,
    [id],
  );

  return rows;
}
