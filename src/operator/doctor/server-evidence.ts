import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import type pg from 'pg';
import type { SessionSettings } from '../../postgres/connection.ts';
import { fingerprintMethod } from '../../postgres/schema-fingerprint.ts';
import type { Head } from './check-schema.ts';
import type { CheckedTenant } from './control-facts.ts';

/** What a server shows, without a connection to a tenant database, of all that the checks inside depend on. */
export interface ServerEvidence {
  /** Of the server itself; undefined if its counters and roles cannot prove anything. */
  server: string | undefined;
  databases: Map<string, { isUnused: boolean; evidence: string }>;
  /** Digests by the name of the role. */
  roles: Map<string, string>;
}

/** The settings of the connection that reads the evidence: the text of a timestamp depends on the time zone. */
export const evidenceSettings: SessionSettings = { timezone: 'UTC', jit: 'off' };

/**
 * Returns no row if the server or the login proves nothing: the server does not count rows, for all sessions or for
 * some; it is a standby; or the login may not read passwords, so that a changed one does not show.
 */
const serverQuery = `
  select row(pg_postmaster_start_time(), pg_conf_load_time(), (select stats_reset from pg_stat_bgwriter),
             (select setconfig from pg_db_role_setting where setdatabase = 0 and setrole = 0))::text as evidence
   where current_setting('track_counts')::boolean and not pg_is_in_recovery()
     and has_table_privilege('pg_authid', 'select')
     and not exists (select from pg_db_role_setting, unnest(setconfig) as setting
                      where setting ilike 'track\\_counts=%')`;

// The order of the columns matters (I2 of the write monitor): the number of sessions comes before the counters.
const databasesQuery = `
  select datname::text as name, pg_stat_get_db_numbackends(oid) = 0 as "isUnused",
         row(oid, pg_stat_get_db_tuples_inserted(oid), pg_stat_get_db_tuples_updated(oid),
             pg_stat_get_db_tuples_deleted(oid), pg_stat_get_db_stat_reset_time(oid),
             datdba, datallowconn, datconnlimit, datacl,
             (select string_agg(s::text, ' ' order by setrole) from pg_db_role_setting s where setdatabase = d.oid)
           )::text as evidence
    from pg_database d`;

/** The password leaves the server as part of a digest only. Memberships are those of all groups above the role, too. */
const rolesQuery = `
  with recursive memberships as (
    select member as role, roleid as parent, m::text as membership from pg_auth_members m
    union
    select below.role, m.roleid, m::text from memberships below join pg_auth_members m on m.member = below.parent
  ), groups as (
    select role, string_agg(membership, ' ' order by membership) as memberships from memberships group by role
  )
  select rolname::text as name, encode(sha256(convert_to(row(
           a::text, coalesce(rolvaliduntil > now(), true), memberships,
           (select setconfig from pg_db_role_setting where setdatabase = 0 and setrole = a.oid)
         )::text, 'UTF8')), 'hex') as evidence
    from pg_authid a left join groups on role = oid where starts_with(rolname, $1)`;

/** Reads the evidence of a server in three queries, however many databases there are. */
export async function readServerEvidence(client: pg.Client, prefix: string): Promise<ServerEvidence> {
  const { rows: servers } = await client.query<{ evidence: string }>(serverQuery);
  const server = servers[0]?.evidence;
  if (server === undefined) return { server, databases: new Map(), roles: new Map() };
  const { rows: databases } = await client.query<{ name: string; isUnused: boolean; evidence: string }>(databasesQuery);
  const { rows: roles } = await client.query<{ name: string; evidence: string }>(rolesQuery, [`${prefix}_`]);
  return {
    server,
    databases: new Map(databases.map(({ name, ...database }) => [name, database])),
    roles: new Map(roles.map(({ name, evidence }) => [name, evidence])),
  };
}

/** Evidence about one tenant database. */
export interface TenantEvidence {
  /** Equal digests prove that a check inside finds the same, if the database is unused when the later one is read. */
  digest: string;
  /** True if no session was connected to the database. */
  isUnused: boolean;
}

/**
 * Returns the evidence about a tenant database; undefined if there is none.
 *
 * Proof that a check inside a database finds the same at a later time b as at an earlier time r, where evidence A was
 * read before r and evidence B at b, both have the same digest, and B found no session:
 *
 *   1. The contents of the database are the same, by the proof of the write monitor (`WriteMonitor`), whose poll A and
 *      poll B are these two. Changes of the schema write rows of the catalogs, which count, too.
 *   2. The login of the tenant works as it did: its role with its password and memberships, the privileges on the
 *      database, and the settings that each session gets are in the digest. `pg_hba.conf` and `postgresql.conf` take
 *      effect when the server loads them, which changes `pg_conf_load_time()`, or starts.
 *   3. The expectations are the same: the row of the tenant, the schema at head, and the code of the checks are in the
 *      digest.
 *
 * Not proved: that the files of the database are intact.
 * @param checks the digest of the checks (`checksDigest`)
 */
export function tenantEvidence(
  { id, guid, databaseName, roleName, rolePassword, schemaVersion }: CheckedTenant,
  { server, databases, roles }: ServerEvidence,
  head: Head,
  checks: string,
): TenantEvidence | undefined {
  const database = databases.get(databaseName);
  const role = roles.get(roleName);
  if (server === undefined || !database || role === undefined) return undefined;
  const password = Buffer.from(rolePassword).toString('base64');
  const facts = [
    ...[checks, head.version, head.fingerprint, server, database.evidence, role],
    ...[id, guid, databaseName, roleName, password, schemaVersion],
  ];
  const digest = createHash('sha256').update(JSON.stringify(facts)).digest('hex');
  return { digest, isUnused: database.isUnused };
}

/** Returns a digest that changes with the code of the checks. */
export async function checksDigest(): Promise<string> {
  const folder = new URL('./', import.meta.url);
  const hash = createHash('sha256').update(fingerprintMethod);
  for (const name of (await readdir(folder)).sort()) hash.update(await readFile(new URL(name, folder)));
  return hash.digest('hex');
}
