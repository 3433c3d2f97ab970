import type pg from 'pg';
import { noPassword } from '../../accounts/auth/passwords.ts';
import { nameOfUser } from '../../control/user-kinds.ts';
import { countText } from '../command/texts.ts';
import {
  type LaterProviders,
  laterProviders,
  type ReplayedProviders,
  replayedProviderLines,
  replayProviders,
} from './later-providers.ts';
import { lostFactorLines, type ReplayedFactors, replayFactors } from './lost-factors.ts';

/** Access that was taken away, as a later state of the control database says. */
export interface LaterState extends LaterProviders {
  /** The guids of disabled users. */
  readonly disabledUsers: readonly string[];
  /** The ids of revoked API clients. */
  readonly revokedClients: readonly string[];
  /** The guids of suspended and deleted tenants. */
  readonly suspended: readonly string[];
  readonly deleted: readonly string[];
  /** The rows of `purged_tenants`, as JSON. */
  readonly purged: string;
  /** The rows of `tenant_slugs`, as JSON. */
  readonly slugs: string;
  /** The tenants that refuse passwords, with the guids of those who may use one, as JSON. */
  readonly signInRules: string;
  /** The features of tenants, whether they are isolated, and their pages, as JSON. */
  readonly tenants: string;
  /** The permissions of roles, and whether they require a second factor, as JSON. */
  readonly roles: string;
  /**
   * All users with addresses, roles, scopes, entities, networks, digests of passwords, and the
   * ids of second factors and of held ones, as JSON.
   */
  readonly people: string;
}

/**
 * The changes that a later state has made in a restored one, and the differences between the
 * two, which are printed.
 */
export interface Replayed extends ReplayedFactors, ReplayedProviders {
  usersDisabled: number;
  clientsRevoked: number;
  /** Slugs of the tenants that were suspended or deleted again. */
  tenantsStopped: string[];
  /** Slugs of the tenants that stay purged. */
  tenantsPurged: string[];
  /** Tenants that have their later slugs again, each with the one that was restored. */
  tenantsRenamed: { slug: string; from: string }[];
  /** Slugs of the tenants that refuse passwords, here or later. */
  tenantsWithoutPasswords: string[];
  /** Features, roles and people that differ, in the words of the operator. */
  differences: string[];
}

/**
 * Reads the records of a control database, at the version of this build, about access that was
 * taken away.
 */
export async function readLaterState(client: pg.Client): Promise<LaterState> {
  const { rows } = await client.query<{ [Field in keyof LaterState]: LaterState[Field] }>(
    `select array(select guid::text from users where disabled_at is not null) as "disabledUsers",
            array(select id from api_clients where revoked_at is not null) as "revokedClients",
            array(select guid::text from tenants where status = 'suspended') as suspended,
            array(select guid::text from tenants where status = 'deleted') as deleted,
            (select coalesce(json_agg(p), '[]') from purged_tenants p)::text as purged,
            (select coalesce(json_agg(s), '[]') from tenant_slugs s)::text as slugs,
            (select coalesce(json_agg(json_build_object('tenant', t.guid, 'exceptions',
                      array(select u.guid from users u where u.tenant_id = t.id and u.id = any (s.except_users)))), '[]')
               from sign_in_rules s join tenants t on t.id = s.tenant_id where s.password_logins = 'refused')::text as "signInRules",
            (select coalesce(json_agg(json_build_object('guid', guid, 'features', features, 'isolated', isolated, 'url', app_url, 'origins', passkey_origins)), '[]')
               from tenants)::text as tenants,
            (select coalesce(json_agg(json_build_object('tenant', t.guid, 'name', r.name, 'permissions', r.permissions,
                      'requiresFactor', r.requires_second_factor)), '[]')
               from roles r join tenants t on t.id = r.tenant_id)::text as roles,
            (select coalesce(json_agg(json_build_object('guid', u.guid, 'email', u.email, 'role', r.name, 'scope', u.scope,
                      'entity', u.entity_id, 'since', u.entity_since, 'networks', u.networks, 'password', encode(sha256(convert_to(u.password_hash, 'UTF8')), 'hex'),
                      'factors', array(select id from factors f where f.tenant_id = u.tenant_id and f.user_id = u.id and f.confirmed_at is not null),
                      'held', array(select id from factors f where f.tenant_id = u.tenant_id and f.user_id = u.id and f.held_at is not null),
                      'lacksFactor', u.must_set_up_factor)), '[]')
               from users u join roles r on r.id = u.role_id)::text as people,
            ${laterProviders}`,
  );
  const [state] = rows;
  if (!state) throw new Error('the later state has no row');

  return state;
}

/**
 * Revokes, in a restored control database, the access that a later state has revoked. A user who
 * was removed is disabled. Nobody is enabled, and no database is dropped. Tenants get the slugs
 * that they had later, and no slug that was used later is free. No right comes back either
 * (`narrowRights`), nor a second factor (`replayFactors`), nor a way to sign in by a provider
 * (`replayProviders`); the features, roles and people that
 * differ are returned.
 * @param client in the transaction that makes the restored database safe
 */
export async function replay(client: pg.Client, later: LaterState): Promise<Replayed> {
  // Rights are taken away also from the last one who may use a password.
  await client.query(`select set_config('app.restores', 'true', true)`);
  const ofTenants = await tenantDifferences(client, later);
  const ofRoles = await roleDifferences(client, later);
  const ofPeople = await peopleDifferences(client, later);

  const clients = await client.query(
    'update api_clients set revoked_at = now() where revoked_at is null and id = any ($1::text[])',
    [later.revokedClients],
  );
  const stopped = await client.query<{ slug: string }>(
    `update tenants set status = case when guid = any ($2::uuid[]) then 'deleted' else 'suspended' end, updated_at = now()
      where guid = any ($2::uuid[]) and status <> 'deleted'
         or guid = any ($1::uuid[]) and status not in ('suspended', 'deleted')
     returning slug`,
    [later.suspended, later.deleted],
  );
  const purged = await client.query<{ slug: string }>(
    `with purged as materialized (select * from json_populate_recordset(null::purged_tenants, $1::json)),
     recorded as (insert into purged_tenants select * from purged on conflict do nothing),
     gone as materialized (select id, slug from tenants where guid in (select guid from purged)),
     databases as (delete from tenant_databases where tenant_id in (select id from gone))
     delete from tenants where id in (select id from gone) returning slug`,
    [later.purged],
  );
  const tenantsRenamed = await replaySlugs(client, later);
  const users = await client.query(
    `update users set disabled_at = now()
      where disabled_at is null
        and (guid = any ($1::uuid[])
          or guid not in (select guid from json_to_recordset($2::json) as l (guid uuid)))`,
    [later.disabledUsers, later.people],
  );

  const narrowed = await narrowRights(client, later);
  const factors = await replayFactors(client, later);
  const providers = await replayProviders(client, later);
  const tenantsWithoutPasswords = await replaySignInRules(client, later);

  return {
    ...factors,
    ...providers,
    tenantsWithoutPasswords,
    usersDisabled: (users.rowCount ?? 0) + narrowed.size,
    clientsRevoked: clients.rowCount ?? 0,
    tenantsStopped: stopped.rows.map(({ slug }) => slug),
    tenantsPurged: purged.rows.map(({ slug }) => slug),
    tenantsRenamed,
    differences: [
      ...ofTenants,
      ...ofRoles,
      ...ofPeople.map(({ guid, text }) => text + (narrowed.has(guid) ? ': is disabled' : '')),
    ],
  };
}

/**
 * Gives tenants the slugs and aliases that they had later. Each slug that was used later is
 * reserved at least, also one of a tenant that the restored state does not know. Two tenants may
 * have exchanged slugs, so each that gives one up gets a slug of nobody first.
 */
async function replaySlugs(
  client: pg.Client,
  { slugs }: LaterState,
): Promise<Replayed['tenantsRenamed']> {
  const { rows: freed } = await client.query<{ guid: string; from: string }>(
    `with later as materialized (select * from ${laterSlugs}),
     freed as materialized (
       select t.id, t.guid, t.slug as "from" from tenants t
        where exists (select from later l where l.slug = t.slug and l.tenant_guid <> t.guid)
           or exists (select from later l where l.tenant_guid = t.guid and l.alias_until is null and l.slug <> t.slug)),
     renamed as (
       update tenants t set slug = ${slugOfNobody('t.guid')}, updated_at = now() from freed where freed.id = t.id)
     select guid, "from" from freed`,
    [slugs],
  );
  await client.query(
    `insert into tenant_slugs as known (slug, tenant_guid, alias_until, is_served)
     select slug, tenant_guid, coalesce(alias_until, now()), is_served or alias_until is null from ${laterSlugs}
     on conflict (slug) do update
        set tenant_guid = excluded.tenant_guid, alias_until = excluded.alias_until, is_served = excluded.is_served
      where known.alias_until is not null`,
    [slugs],
  );
  await client.query(
    `update tenants t set slug = l.slug, updated_at = now() from ${laterSlugs}
      where l.tenant_guid = t.guid and l.alias_until is null and t.slug = ${slugOfNobody('t.guid')}`,
    [slugs],
  );
  await client.query(
    `delete from tenant_slugs where alias_until is not null and slug = ${slugOfNobody('tenant_guid')}`,
  );

  const { rows: renamed } = await client.query<{ guid: string; slug: string }>(
    'select guid, slug from tenants where guid = any ($1::uuid[]) order by slug',
    [freed.map(({ guid }) => guid)],
  );
  const before = new Map(freed.map(({ guid, from }) => [guid, from]));

  return renamed.map(({ guid, slug }) => ({ slug, from: before.get(guid) ?? '' }));
}

/** SQL of the later rows of `tenant_slugs`, of which the first parameter is the JSON. */
const laterSlugs = 'json_populate_recordset(null::tenant_slugs, $1::json) l';

/**
 * SQL of a slug that no other tenant has.
 * @param guid SQL of the guid of a tenant
 */
const slugOfNobody = (guid: string): string => `'s' || left(md5(${guid}::text), 30)`;

/**
 * Narrows the rights of the restored state to those that the later one gives, too:
 *   - a tenant keeps the features of both, and is isolated if it is so in one of them; the links
 *     in its mails, which have tokens, lead to the later address: the former one may be that of
 *     somebody else; for the same reason, passkeys work on the pages of both alone;
 *   - a role keeps the permissions of both;
 *   - a password that was replaced later is none;
 *   - a person whose role, scope or entity differs gets the later ones where they are within the
 *     restored rights, and is disabled otherwise, with the later entity;
 *   - a program is limited to the later networks, if it was limited then;
 *   - a person whose address differs is disabled: who reads the mails of the restored one could
 *     ask for a password.
 * @returns the guids of the users who were disabled
 */
async function narrowRights(client: pg.Client, later: LaterState): Promise<ReadonlySet<string>> {
  await client.query(
    `update tenants t
        set features = array(select f from unnest(t.features) as f where f = any (l.features)),
            isolated = t.isolated or l.isolated, app_url = l.url, updated_at = now(),
            passkey_origins = array(select o from unnest(t.passkey_origins) as o where o = any (l.origins))
       from ${laterTenants}
      where t.guid = l.guid and ${isTenantOther}`,
    [later.tenants],
  );
  await client.query(
    `update roles r
        set permissions = array(select p from unnest(r.permissions) as p where p = any (l.permissions))
       from ${laterRoles}
       join tenants t on t.guid = l.tenant
      where r.tenant_id = t.id and r.name = l.name and not r.permissions <@ l.permissions`,
    [later.roles],
  );
  await client.query(
    `update users u set password_hash = $2
       from ${laterPeople}
      where u.guid = l.guid and ${passwordDigest} <> l.password`,
    [later.people, noPassword],
  );

  await client.query(
    `update users u set networks = l.networks
       from ${laterPeople}
      where u.guid = l.guid and ${areNetworksOther}`,
    [later.people],
  );

  const { rows } = await client.query<{ guid: string; isDisabled: boolean }>(
    `with changed as materialized (
       select u.id, n.id as role_id, l.scope, l.entity, l.since,
              n.id is not null and n.permissions <@ r.permissions and l.scope in ('Self', u.scope) and u.email = l.email
                and (l.scope = 'All' or u.scope = 'All'
                  or (l.entity, l.since) is not distinct from (u.entity_id, u.entity_since)) as is_within
         from ${laterPeople}
         join users u on u.guid = l.guid join roles r on r.id = u.role_id
         left join roles n on n.tenant_id = u.tenant_id and n.name = l.role
        where (u.email, r.name, u.scope, u.entity_id, u.entity_since)
              is distinct from (l.email, l.role, l.scope, l.entity, l.since))
     update users u
        set role_id = case when is_within then c.role_id else u.role_id end,
            scope = case when is_within then c.scope else u.scope end,
            entity_id = c.entity, entity_since = c.since,
            disabled_at = case when is_within then u.disabled_at else coalesce(u.disabled_at, now()) end
       from changed c, users before
      where c.id = u.id and before.id = u.id
     returning u.guid, not is_within and before.disabled_at is null as "isDisabled"`,
    [later.people],
  );

  return new Set(rows.filter(({ isDisabled }) => isDisabled).map(({ guid }) => guid));
}

/**
 * Refuses passwords in the tenants that have refused them later, and in those that do so in the
 * restored state. Where both do, those may use one all the same who may in both.
 * @returns the slugs of these tenants
 */
async function replaySignInRules(
  client: pg.Client,
  { signInRules }: LaterState,
): Promise<string[]> {
  await client.query(
    `insert into sign_in_rules as known (tenant_id, password_logins, except_users)
     select t.id, 'refused', array(select u.id from users u where u.tenant_id = t.id and u.guid = any (l.exceptions))
       from json_to_recordset($1::json) as l (tenant uuid, exceptions uuid[]) join tenants t on t.guid = l.tenant
     on conflict (tenant_id) do update
        set password_logins = 'refused', changed_at = now(),
            except_users = case known.password_logins
              when 'refused' then array(select e from unnest(known.except_users) e where e = any (excluded.except_users))
              else excluded.except_users end`,
    [signInRules],
  );

  const { rows } = await client.query<{ slug: string }>(
    `select slug from sign_in_rules s join tenants t on t.id = s.tenant_id
      where s.password_logins = 'refused' order by slug`,
  );
  return rows.map(({ slug }) => slug);
}

/** SQL of the later tenants, roles and people, of which the first parameter is the JSON. */
const laterTenants =
  'json_to_recordset($1::json) as l (guid uuid, features text[], isolated boolean, url text, origins text[])';
const laterRoles = 'json_to_recordset($1::json) as l (tenant uuid, name text, permissions text[])';
const laterPeople = `json_to_recordset($1::json)
  as l (guid uuid, email text, role text, scope text, entity bigint, since timestamptz, networks cidr[], password text)`;

/** SQL: true for a tenant that the later state changes. */
const isTenantOther = `
  (not t.features <@ l.features or l.isolated and not t.isolated or t.app_url is distinct from l.url
    or not t.passkey_origins <@ l.origins)`;

/** SQL: true for a program that the later state limits to other networks. */
const areNetworksOther = `(l.networks <> '{}' and l.networks <> u.networks)`;

/** SQL of the digest of a user's password. */
const passwordDigest = `encode(sha256(convert_to(u.password_hash, 'UTF8')), 'hex')`;

async function tenantDifferences(client: pg.Client, later: LaterState): Promise<string[]> {
  const { rows } = await client.query<{ text: string }>(
    `select format('%s: ', t.slug) || concat_ws(', ',
              case when not t.features <@ l.features
                then format('features were %s later, were restored as %s: those of both are left',
                            coalesce(nullif(array_to_string(l.features, ' and '), ''), 'none'), array_to_string(t.features, ' and ')) end,
              case when l.isolated and not t.isolated then 'was isolated later, and is so again' end,
              case when t.app_url is distinct from l.url then format('links in its mails led to %s later, and do so again',
                            coalesce(l.url, 'the address of the installation')) end,
              case when not t.passkey_origins <@ l.origins
                then format('further pages with passkeys were %s later, were restored as %s: those of both are left',
                            coalesce(nullif(array_to_string(l.origins, ' and '), ''), 'none'), array_to_string(t.passkey_origins, ' and ')) end) as text
       from ${laterTenants} join tenants t on t.guid = l.guid
      where ${isTenantOther} order by t.slug`,
    [later.tenants],
  );
  return rows.map(({ text }) => text);
}

async function roleDifferences(client: pg.Client, later: LaterState): Promise<string[]> {
  const { rows } = await client.query<{ slug: string; name: string; now: string; later: string }>(
    `select t.slug, r.name, array_to_string(r.permissions, ', ') as now, array_to_string(l.permissions, ', ') as later
       from ${laterRoles}
       join tenants t on t.guid = l.tenant join roles r on r.tenant_id = t.id and r.name = l.name
      where not (r.permissions <@ l.permissions and r.permissions @> l.permissions) order by 1, 2`,
    [later.roles],
  );

  return rows.map(
    row =>
      `${row.slug}: role ${row.name}: permissions were ${row.later} later, were restored as ${row.now}: those of both are left`,
  );
}

/** Returns the people who differ, each with a line for the operator. */
async function peopleDifferences(
  client: pg.Client,
  later: LaterState,
): Promise<{ guid: string; text: string }[]> {
  const { rows } = await client.query<{ guid: string; text: string }>(
    `select u.guid, format('%s: %s: ', t.slug, ${nameOfUser('u')}) || concat_ws(', ',
              case when u.email <> l.email then format('address was %s later', l.email) end,
              case when r.name <> l.role then format('role was %s later, was restored as %s', l.role, r.name) end,
              case when u.scope <> l.scope then format('scope was %s later, was restored as %s', l.scope, u.scope) end,
              case when u.entity_id is distinct from l.entity
                     then format('entity was %s later, was restored as %s', coalesce(l.entity::text, 'none'), coalesce(u.entity_id::text, 'none'))
                   when u.entity_since <> l.since then format('entity was another one with the number %s later', l.entity) end,
              case when ${areNetworksOther} then format('networks were %s later, and are so again', array_to_string(l.networks, ' and ')) end,
              case when ${passwordDigest} <> l.password then 'password was replaced later, so there is none: set one' end) as text
       from ${laterPeople}
       join users u on u.guid = l.guid join roles r on r.id = u.role_id join tenants t on t.id = u.tenant_id
      where (u.email, r.name, u.scope, u.entity_id, u.entity_since, ${passwordDigest})
            is distinct from (l.email, l.role, l.scope, l.entity, l.since, l.password)
         or ${areNetworksOther}
      order by t.slug, u.email`,
    [later.people],
  );
  return rows;
}

/** Formats the result of `replay`, line by line. */
export function replayedLines(replayed: Replayed): string[] {
  const {
    usersDisabled,
    clientsRevoked,
    tenantsStopped,
    tenantsPurged,
    tenantsRenamed,
    differences,
    tenantsWithoutPasswords,
    factorsRemoved,
    factorsLost,
  } = replayed;
  const counts = `${countText(usersDisabled, 'user')} disabled, ${countText(clientsRevoked, 'API client')} revoked`;
  const lines = [`Taken away later, and so again: ${counts}.`];

  if (tenantsStopped.length > 0) {
    lines.push(`Suspended or deleted later, and so again: ${tenantsStopped.join(', ')}.`);
  }
  if (tenantsPurged.length > 0) {
    lines.push(
      `Purged later, and removed again: ${tenantsPurged.join(', ')}. Their databases, if any, are left.`,
    );
  }
  if (tenantsRenamed.length > 0) {
    const names = tenantsRenamed.map(({ slug, from }) => `${slug} (was ${from})`);
    lines.push(`Renamed later, and so again: ${names.join(', ')}.`);
  }
  if (factorsRemoved > 0) {
    lines.push(`Removed later, and so again: ${countText(factorsRemoved, 'second factor')}.`);
  }
  lines.push(...replayedProviderLines(replayed));
  if (tenantsWithoutPasswords.length > 0) {
    lines.push(
      `Refuse passwords: ${tenantsWithoutPasswords.join(', ')}. Where nobody can sign in at the provider: ` +
        'bin/backoffice edit TENANT --password-logins allowed',
    );
  }
  lines.push(...lostFactorLines('Had a second factor later, and none of it here', factorsLost));
  if (differences.length > 0) {
    lines.push(
      'Different later: each has the narrower rights, or is disabled where the later ones are not within the restored:',
      ...differences,
    );
  }

  return lines;
}
