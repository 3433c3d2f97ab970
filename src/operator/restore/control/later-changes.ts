import type pg from 'pg';

/** What a control database says about rights that were taken away, to repeat it in an earlier one. */
export interface LaterChanges {
  /** The guids of all users, and of those that may not log in. */
  readonly users: readonly string[];
  readonly disabledUsers: readonly string[];
  /** The ids of all API clients that may get tokens. */
  readonly clients: readonly string[];
  /** The guids of all tenants, with their states. */
  readonly tenants: ReadonlyMap<string, string>;
  readonly purgedTenants: readonly string[];
}

export async function readLaterChanges(client: pg.Client): Promise<LaterChanges> {
  const { rows } = await client.query<{
    users: string[];
    disabled: string[];
    clients: string[];
    tenants: { guid: string; status: string }[];
    purged: string[];
  }>(
    `select array(select guid::text from users) as users,
            array(select guid::text from users where disabled_at is not null) as disabled,
            array(select id from api_clients where revoked_at is null) as clients,
            (select coalesce(json_agg(json_build_object('guid', guid, 'status', status)), '[]') from tenants) as tenants,
            array(select guid::text from purged_tenants) as purged`,
  );
  const found = rows[0];
  return {
    users: found?.users ?? [],
    disabledUsers: found?.disabled ?? [],
    clients: found?.clients ?? [],
    tenants: new Map((found?.tenants ?? []).map(({ guid, status }) => [guid, status])),
    purgedTenants: found?.purged ?? [],
  };
}

/**
 * Disables the users that are disabled or gone in the later control database, revokes the API clients that are revoked
 * or gone there, and takes the tenants out of service that are not served there. A purged tenant becomes `deleted`:
 * `purge` then removes its rows, too.
 * @returns how many were changed
 */
export async function replayLaterChanges(
  client: pg.Client,
  later: LaterChanges,
): Promise<{ users: number; clients: number; tenants: number }> {
  const users = await client.query(
    `update users u set disabled_at = now() from tenants t
      where t.id = u.tenant_id and u.disabled_at is null
        and (u.guid = any ($1::uuid[]) or t.guid = any ($2::uuid[]) and u.guid <> all ($3::uuid[]))`,
    [later.disabledUsers, [...later.tenants.keys()], later.users],
  );
  const clients = await client.query(
    `update api_clients c set revoked_at = now() from tenants t
      where t.id = c.tenant_id and revoked_at is null and t.guid = any ($1::uuid[]) and c.id <> all ($2::text[])`,
    [[...later.tenants.keys()], later.clients],
  );
  const notServed = [...later.tenants].filter(([, status]) => status === 'suspended' || status === 'deleted');
  const states = [...notServed, ...later.purgedTenants.map((guid): [string, string] => [guid, 'deleted'])];
  const tenants = await client.query(
    `update tenants t set status = s.status, updated_at = now()
       from unnest($1::uuid[], $2::text[]) as s (guid, status) where t.guid = s.guid and t.status <> s.status`,
    [states.map(([guid]) => guid), states.map(([, status]) => status)],
  );
  return { users: users.rowCount ?? 0, clients: clients.rowCount ?? 0, tenants: tenants.rowCount ?? 0 };
}
