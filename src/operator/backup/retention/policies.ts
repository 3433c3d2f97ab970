import type { ControlStatements } from '../../../control/installation.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { noSuchTenant } from '../../registry/read-tenants.ts';

/**
 * The ages to which rows are kept (`parseAge`). Null stands for the default; in the default
 * itself, for ever.
 */
interface RetentionPolicy {
  readonly activity: string | null;
  readonly audit: string | null;
}

/** The default of all tenants. */
interface DefaultRetention extends RetentionPolicy {
  /** The time for which the control database keeps the audit log of users and roles. */
  readonly people: string;
  /** The time for which the control database keeps logins. */
  readonly logins: string;
}

const defaultOfPeople = '10y';
const defaultOfLogins = '1y';

/** The retention of a tenant. Times are in ISO 8601. */
export interface TenantRetention {
  slug: string;
  /** The age that is in force: that of the tenant, or the default. */
  activity: string;
  audit: string;
  own: RetentionPolicy;
  /** Rows before this moment were removed; null: none. */
  activitiesRemovedBefore: string | null;
  auditRemovedBefore: string | null;
}

const removedBefore = (kind: string): string =>
  `(select to_char(max(removed_before) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') from history_removals
     where tenant_id = t.id and kind = '${kind}' and state = 'done' and rows > 0)`;

/** Returns the default of all tenants. */
export async function readDefault({ statements }: ControlStatements): Promise<DefaultRetention> {
  const { rows } = await statements.query<
    RetentionPolicy & { people: string | null; logins: string | null }
  >('select activity, audit, people, logins from retention_policies where tenant_id is null');
  const [policy] = rows;
  return {
    activity: policy?.activity ?? null,
    audit: policy?.audit ?? null,
    people: policy?.people ?? defaultOfPeople,
    logins: policy?.logins ?? defaultOfLogins,
  };
}

/**
 * Returns the retention of all tenants, or of one.
 * @throws {OperatorError} when there is no tenant with the slug
 */
export async function readRetention(
  { statements }: ControlStatements,
  slug?: string,
): Promise<TenantRetention[]> {
  const { rows } = await statements.query<
    Omit<TenantRetention, 'own'> & { ownActivity: string; ownAudit: string }
  >(
    `select t.slug, p.activity as "ownActivity", p.audit as "ownAudit", coalesce(p.activity, d.activity, 'forever') as activity,
            coalesce(p.audit, d.audit, 'forever') as audit, ${removedBefore('activity')} as "activitiesRemovedBefore",
            ${removedBefore('audit')} as "auditRemovedBefore"
       from tenants t left join retention_policies p on p.tenant_id = t.id
       left join retention_policies d on d.tenant_id is null
      where t.status <> 'provisioning' and coalesce($1, t.slug) = t.slug order by t.slug`,
    [slug ?? null],
  );
  if (slug !== undefined && rows.length === 0) throw noSuchTenant(slug);

  return rows.map(({ ownActivity, ownAudit, ...row }) => ({
    ...row,
    own: { activity: ownActivity, audit: ownAudit },
  }));
}

/**
 * Sets how long a tenant keeps its rows. Nothing is removed before the next `retention apply`.
 * @param slug null: the default of all tenants
 * @param change ages as `parseAge` returns them, or `default`; undefined leaves one as it is.
 *   Only the default has `people` and `logins`
 */
export async function setRetention(
  { statements }: ControlStatements,
  slug: string | null,
  change: {
    activity?: string | undefined;
    audit?: string | undefined;
    people?: string | undefined;
    logins?: string | undefined;
  },
): Promise<void> {
  if (slug === null && Object.values(change).includes('default')) {
    throw new OperatorError('The default itself is an age, or forever', { usage: true });
  }

  const [tenant] =
    slug === null
      ? [{ id: null }]
      : (await statements.query<{ id: string }>(tenantId, [slug])).rows;
  if (!tenant) throw noSuchTenant(slug ?? '');

  const ages = [change.activity, change.audit, change.people, change.logins];
  const values = ages.map(age => (age === undefined || age === 'default' ? null : age));
  const isSet = ages.map(age => (age === undefined ? 0 : 1));
  await statements.query(
    `insert into retention_policies as p (tenant_id, activity, audit, people, logins) values ($1, $2, $3, $4, $5)
       on conflict (tenant_id) do update
       set activity = case when $6::int = 1 then excluded.activity else p.activity end,
           audit = case when $7::int = 1 then excluded.audit else p.audit end,
           people = case when $8::int = 1 then excluded.people else p.people end,
           logins = case when $9::int = 1 then excluded.logins else p.logins end,
           changed_at = now()`,
    [tenant.id, ...values, ...isSet],
  );
}

const tenantId = `select id from tenants where slug = $1 and status <> 'provisioning'`;
