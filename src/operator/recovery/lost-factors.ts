import type pg from 'pg';

/** SQL: true for a user `u` who has a second factor. */
const hasFactor = `
  exists (select from factors f where f.tenant_id = u.tenant_id and f.user_id = u.id and f.confirmed_at is not null)`;

/** SQL of the tenant and the address of a user, whose tenant is `t`, for the operator. */
const personText = `format('%s: %s', t.slug, u.email)`;

/**
 * Lets people without a second factor log in only after they have set one up, by a link in a
 * mail: no network counts as known for the account, because from a known one the password alone
 * would set it up.
 * @param guids of people, of whom those who have a factor stay as they are
 * @returns a text for each of them, ordered
 */
async function requireSetUp(client: pg.Client, guids: readonly string[]): Promise<string[]> {
  const { rows } = await client.query<{ text: string }>(
    `with lost as (
       update users u set must_set_up_factor = true from tenants t
        where t.id = u.tenant_id and u.guid = any ($1::uuid[]) and not ${hasFactor}
       returning u.id, ${personText} as text),
     networks as (delete from login_networks where user_id in (select id from lost))
     select text from lost order by text`,
    [guids],
  );

  return rows.map(({ text }) => text);
}

/** The changes that a later state has made to the second factors of a restored one. */
export interface ReplayedFactors {
  /** Factors that were removed later. */
  readonly factorsRemoved: number;
  /** The people who had a factor later, and have none of those here. */
  readonly factorsLost: readonly string[];
}

/**
 * Removes, in a restored control database, the second factors that a later state does not have,
 * and holds the passkeys that it holds. Who has a factor there and none here sets one up before
 * the next login. Roles that require one there do so here.
 * @param later the users with the ids of their factors, and roles, as JSON (`LaterState`)
 */
export async function replayFactors(
  client: pg.Client,
  { people, roles }: { readonly people: string; readonly roles: string },
): Promise<ReplayedFactors> {
  await client.query(
    `update roles r set requires_second_factor = true
       from json_to_recordset($1::json) as l (tenant uuid, name text, "requiresFactor" boolean)
       join tenants t on t.guid = l.tenant
      where r.tenant_id = t.id and r.name = l.name and l."requiresFactor" and not r.requires_second_factor`,
    [roles],
  );
  const removed = await client.query(
    `delete from factors f
      using users u, json_to_recordset($1::json) as l (guid uuid, factors uuid[])
      where u.guid = l.guid and f.tenant_id = u.tenant_id and f.user_id = u.id and f.id <> all (l.factors)`,
    [people],
  );
  await client.query(
    `update factors f set held_at = now()
       from users u, json_to_recordset($1::json) as l (guid uuid, held uuid[])
      where u.guid = l.guid and f.tenant_id = u.tenant_id and f.user_id = u.id
        and f.id = any (l.held) and f.held_at is null`,
    [people],
  );

  const { rows } = await client.query<{ guid: string }>(
    `select guid from json_to_recordset($1::json) as l (guid uuid, factors uuid[], "lacksFactor" boolean)
      where l.factors <> '{}' or l."lacksFactor"`,
    [people],
  );
  const factorsLost = await requireSetUp(
    client,
    rows.map(({ guid }) => guid),
  );

  return { factorsRemoved: removed.rowCount ?? 0, factorsLost };
}

/**
 * Removes the factors whose key nobody can open, because the master key that sealed it is lost,
 * and all recovery codes. Who has no other factor sets one up before the next login.
 * @returns the number of removed factors, and the people who have none
 */
export async function removeLostFactors(
  client: pg.Client,
): Promise<{ factors: number; people: readonly string[] }> {
  const { rows } = await client.query<{ guid: string; isConfirmed: boolean }>(
    `delete from factors f using users u
      where f.secret is not null and u.id = f.user_id and u.tenant_id = f.tenant_id
     returning u.guid, f.confirmed_at is not null as "isConfirmed"`,
  );
  const confirmed = rows.filter(({ isConfirmed }) => isConfirmed);
  const people = await requireSetUp(
    client,
    confirmed.map(({ guid }) => guid),
  );

  return { factors: confirmed.length, people };
}

/**
 * Returns what the operator reads about people whose second factor is lost, line by line.
 * @param why the begin of the first line
 */
export function lostFactorLines(why: string, people: readonly string[]): string[] {
  if (people.length === 0) return [];

  return [
    `${why}, so no password alone lets them in. Each asks for a new password by mail, uses its ` +
      'link, and sets a factor up at the next login. Where no mail arrives: ' +
      'bin/backoffice user factors reset TENANT EMAIL',
    ...people,
  ];
}
