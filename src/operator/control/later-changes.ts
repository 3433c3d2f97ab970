import type pg from 'pg';
import { type Difference, narrowPeople, peopleAsJson } from './narrow-people.ts';

/** What a control database says about rights that were taken away, to repeat it in an earlier one. */
export interface LaterChanges {
  /** The guids of all users, and of those that may not log in. */
  readonly users: readonly string[];
  readonly disabledUsers: readonly string[];
  /** The ids of all API clients that may get tokens. */
  readonly clients: readonly string[];
  readonly tenants: readonly { readonly guid: string; readonly status: string }[];
  readonly purgedTenants: readonly string[];
  /** `peopleAsJson`. */
  readonly roles: string;
  readonly people: string;
}

/** How many users, clients and tenants were disabled, revoked or taken out of service, and all that differed. */
export interface ReplayedChanges {
  users: number;
  clients: number;
  tenants: number;
  differences: Difference[];
}

export async function readLaterChanges(client: pg.Client): Promise<LaterChanges> {
  const { rows } = await client.query(
    `select array(select guid::text from users) as users,
            array(select guid::text from users where disabled_at is not null) as "disabledUsers",
            array(select id from api_clients where revoked_at is null) as clients,
            (select coalesce(json_agg(json_build_object('guid', guid, 'status', status)), '[]') from tenants) as tenants,
            array(select guid::text from purged_tenants) as "purgedTenants", ${peopleAsJson}`,
  );
  return (rows as [LaterChanges])[0];
}

/**
 * Disables the users that are disabled or gone in the later control database, revokes the API clients that are revoked
 * or gone there, and takes the tenants out of service that are not served there. A purged tenant becomes `deleted`:
 * `purge` then removes its rows, too. What users may do becomes the less of both (`narrowPeople`).
 */
export async function replayLaterChanges(client: pg.Client, later: LaterChanges): Promise<ReplayedChanges> {
  const differences = await narrowPeople(client, later);
  const knownTenants = later.tenants.map(({ guid }) => guid);
  const users = await client.query<Omit<Difference, 'changes'> & { isGone: boolean }>(
    `update users u set disabled_at = now() from tenants t
      where t.id = u.tenant_id and u.disabled_at is null
        and (u.guid = any ($1::uuid[]) or t.guid = any ($2::uuid[]) and u.guid <> all ($3::uuid[]))
     returning t.slug, u.email as name, u.guid <> all ($3::uuid[]) as "isGone"`,
    [later.disabledUsers, knownTenants, later.users],
  );
  for (const { slug, name, isGone } of users.rows)
    if (isGone) differences.push({ slug, name, changes: ['removed later: disabled'] });
  const clients = await client.query<Omit<Difference, 'changes'>>(
    `update api_clients c set revoked_at = now() from tenants t
      where t.id = c.tenant_id and revoked_at is null and t.guid = any ($1::uuid[]) and c.id <> all ($2::text[])
     returning t.slug, 'client ' || c.id as name`,
    [knownTenants, later.clients],
  );
  for (const revoked of clients.rows) differences.push({ ...revoked, changes: ['revoked later: revoked'] });
  const notServed = later.tenants.filter(({ status }) => status === 'suspended' || status === 'deleted');
  const states = [...notServed, ...later.purgedTenants.map(guid => ({ guid, status: 'deleted' }))];
  const tenants = await client.query<{ slug: string; status: string }>(
    `update tenants t set status = s.status, updated_at = now()
       from unnest($1::uuid[], $2::text[]) as s (guid, status) where t.guid = s.guid and t.status <> s.status
     returning t.slug, s.status`,
    [states.map(({ guid }) => guid), states.map(({ status }) => status)],
  );
  for (const { slug, status } of tenants.rows)
    differences.push({ slug, name: 'tenant', changes: [`${status} later: ${status}`] });
  return { users: users.rows.length, clients: clients.rows.length, tenants: tenants.rows.length, differences };
}
