import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import type pg from 'pg';
import { type ChangeCounters, readDatabaseCounters } from '../../postgres/change-counters.ts';
import type { SessionSettings } from '../../postgres/connection.ts';
import { fingerprintMethod } from '../../postgres/schema-fingerprint.ts';
import type { Head } from './check-schema.ts';
import type { CheckedTenant } from './control-facts.ts';

/** What a server shows, without a connection to a tenant database, of all that the checks inside depend on. */
export interface ServerEvidence {
  /** Of the server itself; undefined if its counters and roles prove nothing. */
  server: string | undefined;
  /** By name: the counters, and what else the server shows of the database. */
  databases: Map<string, ChangeCounters & { evidence: string }>;
  /** Digests by the name of the role. */
  roles: Map<string, string>;
}

/** The settings of the connection that reads the evidence: the text of a timestamp depends on the time zone. */
export const evidenceSettings: SessionSettings = { timezone: 'UTC', jit: 'off' };

/** Returns no row if the login may not read passwords, so that a changed one does not show. */
const serverQuery = `
  select row(pg_conf_load_time(),
             (select setconfig from pg_db_role_setting where setdatabase = 0 and setrole = 0))::text as evidence
   where has_table_privilege('pg_authid', 'select')`;

const databasesQuery = `
  select datname::text as name,
         row(datdba, datallowconn, datconnlimit, datacl,
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

/** Reads the evidence of a server in four queries, however many databases there are. */
export async function readServerEvidence(client: pg.Client, prefix: string): Promise<ServerEvidence> {
  const counters = await readDatabaseCounters(client);
  const { rows: servers } = await client.query<{ evidence: string }>(serverQuery);
  const server = servers[0]?.evidence;
  if (server === undefined || counters.size === 0) return { server: undefined, databases: new Map(), roles: new Map() };
  const { rows: databases } = await client.query<{ name: string; evidence: string }>(databasesQuery);
  const { rows: roles } = await client.query<{ name: string; evidence: string }>(rolesQuery, [`${prefix}_`]);
  return {
    server,
    databases: new Map(
      databases.flatMap(({ name, evidence }) => {
        const counted = counters.get(name);
        return counted ? [[name, { ...counted, evidence }]] : [];
      }),
    ),
    roles: new Map(roles.map(({ name, evidence }) => [name, evidence])),
  };
}

/**
 * Returns the evidence about a tenant database; undefined if there is none. Its fingerprint is a digest of that of the
 * counters, and of all else that the checks inside depend on.
 *
 * Proof that a check inside a database finds the same at a later time b as at an earlier time r, where evidence A was
 * read before r and evidence B at b, both have the same fingerprint, and B found no session:
 *
 *   1. The contents of the database are the same, by the proof of `isProvedUnchanged`, whose poll A and poll B are
 *      these two.
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
): ChangeCounters | undefined {
  const database = databases.get(databaseName);
  const role = roles.get(roleName);
  if (server === undefined || !database || role === undefined) return undefined;
  const password = Buffer.from(rolePassword).toString('base64');
  const facts = [
    ...[checks, head.version, head.fingerprint, server, database.fingerprint, database.evidence, role],
    ...[id, guid, databaseName, roleName, password, schemaVersion],
  ];
  const fingerprint = createHash('sha256').update(JSON.stringify(facts)).digest('hex');
  return { isUnused: database.isUnused, fingerprint };
}

/** Returns a digest that changes with the code of the checks. */
export async function checksDigest(): Promise<string> {
  const folder = new URL('./', import.meta.url);
  const hash = createHash('sha256').update(fingerprintMethod);
  for (const name of (await readdir(folder)).sort()) hash.update(await readFile(new URL(name, folder)));
  return hash.digest('hex');
}
