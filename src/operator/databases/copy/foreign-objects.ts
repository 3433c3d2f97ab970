import type pg from 'pg';
import type { Installation } from '../../../control/installation.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { connectFailure } from '../../../lib/log/postgres-causes.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { sqlState } from '../../../lib/postgres/database-error.ts';
import { digestOfDetails, schemaDetails } from '../../../lib/postgres/schema-details.ts';
import { schemaObjects } from '../../../lib/postgres/schema-fingerprint.ts';
import { readOtherSessions, sessionText } from '../../schema/other-sessions.ts';
import { readSchemaState } from '../../schema/schema-steps.ts';
import {
  headFingerprint,
  type KnownObjects,
  knownObjects,
  tenantGroup,
} from '../../schema/template.ts';
import type { TenantDatabase } from '../store/database-store.ts';

/** A database of a tenant on its server. */
export type HeldDatabase = Pick<TenantDatabase, 'server' | 'database' | 'role'>;

/**
 * Objects that somebody else has made in a database of a tenant, without those of an
 * extension.
 */
export interface ForeignObjects {
  /** Schemas with tables, whose rows are nowhere else. */
  readonly schemas: readonly { readonly schema: string; readonly tables: readonly string[] }[];
  /**
   * Tables of the schema `public` that no migration makes. Moves and archives take their rows.
   */
  readonly tables: readonly string[];
  /**
   * All others, which have no rows of their own: each with its kind, such as `view
   * reporting.totals`, and each difference from the template that no copy has, such as
   * `definition of column currencies.rate`. A setting has only its name here, because its value
   * may be a secret.
   */
  readonly others: readonly string[];
}

interface FoundObject {
  readonly kind: string;
  readonly schema: string | null;
  readonly name: string;
  /** The name of the object in the template, if the template has it (`schemaObjects`). */
  readonly key: string | null;
}

/**
 * `$1`: the login role of the tenant; `$2`: the group of the tenants' logins. It reads catalogs
 * that every login may read. A partition is not named beside its table, nor a sequence beside
 * the column that owns it.
 */
const objectsQuery = `
  with members as materialized (
    select classid, objid from pg_depend where deptype = 'e' and refclassid = 'pg_extension'::regclass
  ), schemas as materialized (
    select oid, nspname as name from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'
  ), relations as materialized (
    select c.oid, s.name as schema, c.relname::text as name, relkind as kind, relacl as acl, relowner as owner
      from pg_class c join schemas s on s.oid = relnamespace
     where c.oid >= 16384 and not relispartition and not exists (
       select from members where classid = 'pg_class'::regclass and objid = c.oid)
  ), functions as materialized (
    select p.oid, s.name as schema, proname as name, prokind as kind, proacl as acl, proowner as owner
      from pg_proc p join schemas s on s.oid = pronamespace
     where p.oid >= 16384 and not exists (
       select from members where classid = 'pg_proc'::regclass and objid = p.oid)
  ), databases as (
    select oid, datname, datacl, datdba from pg_database where datname = current_database()
  ), granted as (
    select datacl as acl, datdba as owner from databases
    union all select acl, owner from relations
    union all select nspacl, nspowner from pg_namespace join schemas using (oid)
    union all select attacl, owner from relations r, lateral (
      select attacl from pg_attribute where attrelid = r.oid and attacl is not null offset 0) as columns
    union all select acl, owner from functions
  )
  select case kind when 'r' then 'table' when 'p' then 'table' when 'v' then 'view' when 'f' then 'foreign table'
                   when 'm' then 'materialized view' else 'sequence' end as kind, schema, name,
         case kind when 'S' then 'sequence ' else 'table ' end || name as key
    from relations r
   where kind in ('r', 'p', 'v', 'm', 'f') or kind = 'S' and not exists (
     select from pg_depend where classid = 'pg_class'::regclass and objid = r.oid and deptype in ('a', 'i')
        and refclassid = 'pg_class'::regclass)
  union all
  select 'index', r.schema, r.name, 'index ' || r.name from relations r join pg_index on indexrelid = r.oid
   where r.schema = 'public' and not exists (select from pg_constraint where conindid = r.oid)
  union all
  select 'trigger', r.schema, r.name || '.' || tgname, 'trigger ' || r.name || '.' || tgname
    from pg_trigger t join relations r on r.oid = tgrelid
   where r.schema = 'public' and not tgisinternal
  union all
  select 'policy', r.schema, r.name || '.' || polname, 'policy ' || r.name || '.' || polname
    from pg_policy join relations r on r.oid = polrelid where r.schema = 'public'
  union all
  select case kind when 'p' then 'procedure' when 'a' then 'aggregate' else 'function' end, schema,
         format('%I(%s)', name, pg_get_function_identity_arguments(oid)), 'function ' || oid::regprocedure
    from functions
  union all
  select 'type', s.name, typname, 'type ' || typname from pg_type t join schemas s on s.oid = typnamespace
   where (typtype in ('d', 'e', 'r') or typtype = 'c' and exists (
            select from pg_class where oid = typrelid and relkind = 'c'))
     and not exists (select from members where classid = 'pg_type'::regclass and objid = t.oid)
  union all
  select 'extension', null, extname, 'extension ' || extname from pg_extension where extname <> 'plpgsql'
  union all
  select case type when 'default acl' then 'default rights' else type end, null, identity, null
    from (select 'pg_rewrite'::regclass as classid, oid from pg_rewrite
                  where rulename <> '_RETURN' and ev_class in (select oid from relations)
          union all select 'pg_default_acl'::regclass, oid from pg_default_acl
          union all select 'pg_statistic_ext'::regclass, oid from pg_statistic_ext
          union all select 'pg_collation'::regclass, oid from pg_collation
          union all select 'pg_conversion'::regclass, oid from pg_conversion
          union all select 'pg_operator'::regclass, oid from pg_operator
          union all select 'pg_opclass'::regclass, oid from pg_opclass
          union all select 'pg_cast'::regclass, oid from pg_cast
          union all select 'pg_language'::regclass, oid from pg_language
          union all select 'pg_am'::regclass, oid from pg_am
          union all select 'pg_ts_config'::regclass, oid from pg_ts_config
          union all select 'pg_ts_dict'::regclass, oid from pg_ts_dict
          union all select 'pg_ts_parser'::regclass, oid from pg_ts_parser
          union all select 'pg_ts_template'::regclass, oid from pg_ts_template
          union all select 'pg_transform'::regclass, oid from pg_transform
          union all select 'pg_opfamily'::regclass, oid from pg_opfamily
          union all select 'pg_amop'::regclass, oid from pg_amop where amopfamily < 16384
          union all select 'pg_amproc'::regclass, oid from pg_amproc where amprocfamily < 16384
          union all select 'pg_foreign_data_wrapper'::regclass, oid from pg_foreign_data_wrapper) as further,
         lateral pg_identify_object(classid, oid, 0)
   where further.oid >= 16384
     and not exists (select from members where (members.classid, objid) = (further.classid, further.oid))
  union all
  select 'publication', null, pubname, null from pg_publication
  union all
  select 'subscription', null, subname, null from pg_subscription join databases d on d.oid = subdbid
  union all
  select 'foreign server', null, srvname, null from pg_foreign_server f
   where not exists (select from members where classid = 'pg_foreign_server'::regclass and objid = f.oid)
  union all
  select 'event trigger', null, evtname, null from pg_event_trigger e
   where not exists (select from members where classid = 'pg_event_trigger'::regclass and objid = e.oid)
  union all
  select 'replication slot', null, slot_name, null from pg_replication_slots where database = current_database()
  union all
  select 'large objects', null, 'large objects', null where exists (select from pg_largeobject_metadata)
  union all
  select distinct 'rights of', null, pg_get_userbyid(grantee), null
    from granted, aclexplode(acl)
   where grantee <> owner and grantee <> (select datdba from databases) and grantee <> 0
     and pg_get_userbyid(grantee) not in ($1, $2, 'pg_database_owner')
  union all
  select 'setting', null, split_part(setting, '=', 1)
           || case when setrole = 0 then '' else ' of ' || pg_get_userbyid(setrole) end, null
    from pg_db_role_setting left join databases d on d.oid = setdatabase, unnest(setconfig) as setting
   where d.oid is not null or setdatabase = 0 and setrole = to_regrole(quote_ident($1))
  union all
  select 'membership of the login in', null, roleid::regrole::text, null
    from pg_auth_members where member = to_regrole(quote_ident($1)) and roleid is distinct from to_regrole(quote_ident($2))
  union all
  select 'options of the login', null, option, null
    from pg_roles, unnest(array[
           case when rolconnlimit <> -1 then 'connection limit' end, case when rolvaliduntil is not null then 'valid until' end,
           case when shobj_description(oid, 'pg_authid') is not null then 'comment' end]) as option
   where rolname = $1 and option is not null
   order by 1, 2, 3`;

/**
 * Reads the objects of others in a database of a tenant.
 * @throws when the database cannot be opened
 */
export async function readForeignObjects(
  installation: Installation,
  held: HeldDatabase,
): Promise<ForeignObjects> {
  const { control, servers } = installation;
  const { server, database } = held;
  // This stores the fingerprint that `knownObjects` reads.
  await headFingerprint(control, server, servers.adminUrl(server));
  const known = await knownObjects(installation, server);
  return withConnection(servers.adminUrl(server, database), client =>
    listForeignObjects(client, held, known),
  );
}

/**
 * Reads the objects of others in the connected database, and the differences of its schema that
 * no copy of its data has.
 * @param known the objects that the template has
 */
export async function listForeignObjects(
  client: pg.Client,
  held: Pick<HeldDatabase, 'server' | 'role'>,
  known: KnownObjects,
): Promise<ForeignObjects> {
  const found = await listObjectsOfOthers(client, held, known.definitions);

  return { ...found, others: [...found.others, ...(await listDifferences(client, known))] };
}

/**
 * Reads the objects of others in the connected database.
 * @param known has the names of the objects of the template
 */
export async function listObjectsOfOthers(
  client: pg.Client,
  { server, role }: Pick<HeldDatabase, 'server' | 'role'>,
  known: { has(name: string): boolean },
): Promise<ForeignObjects> {
  const { rows } = await client.query<FoundObject>(objectsQuery, [role, tenantGroup(server)]);
  const foreign = rows.filter(
    ({ schema, key }) => key === null || (schema ?? 'public') !== 'public' || !known.has(key),
  );
  const schemas = new Map<string, string[]>();
  const tables: string[] = [];
  const others: string[] = [];

  for (const { kind, schema, name } of foreign) {
    const isRows = kind === 'table';
    if (kind === 'large objects') schemas.set('pg_catalog', [name]);
    else if (isRows && schema === 'public') tables.push(name);
    else if (isRows) schemas.set(schema ?? '', [...(schemas.get(schema ?? '') ?? []), name]);
    else others.push(`${kind} ${schema === null ? name : `${schema}.${name}`}`);
  }

  return {
    schemas: [...schemas].map(([schema, names]) => ({ schema, tables: names })),
    tables,
    others,
  };
}

/**
 * Kinds of objects that `listObjectsOfOthers` names. The sequence of a column belongs to the
 * definition of the column.
 */
const namedKinds = /^(?:table|index|trigger|policy|function|type|extension|rule|sequence) /;

/**
 * Returns the differences of `readDifferences`, whose rows are read only for the first database
 * with a digest.
 */
async function listDifferences(client: pg.Client, known: KnownObjects): Promise<readonly string[]> {
  // A database whose provision was killed has no migrations yet.
  const { applied } = await readSchemaState(client);
  const version = applied.at(-1) ?? '';
  const key = `${await digestOfDetails(client)} ${version}`;

  const found = known.differences.get(key) ?? (await readDifferences(client, version, known));
  known.differences.set(key, found);

  return found;
}

/**
 * Returns what the schema of the connected database has otherwise than the template, of what
 * `listObjectsOfOthers` does not name: attributes of objects of the template, further columns
 * and constraints, and objects of the template that somebody has removed. A copy has the
 * template's. Of a column that somebody has added, a copy has the values, in the type without
 * its length or precision; it is named when there is more than that.
 */
async function readDifferences(
  client: pg.Client,
  version: string,
  { definitions, versions }: KnownObjects,
): Promise<string[]> {
  const found = new Map([...(await schemaObjects(client)), ...(await schemaDetails(client))]);

  const more = [...found].flatMap(([name, definition]) => {
    const known = definitions.get(name);
    if (known?.has(definition)) return [];
    if (known) return [isDetail(name) ? name : `definition of ${name}`];
    if (namedKinds.test(name)) return [];
    if (!name.startsWith('column ')) return [name];
    if (/ generated [sv] /.test(` ${definition} `)) return [`generated ${name}`];
    return isCopied(definition) ? [] : [`definition of ${name}`];
  });

  const wanted = [...(versions.get(version) ?? [])];
  const removed = wanted.filter(name => !found.has(name)).map(name => `removal of ${name}`);

  return [...more, ...removed].sort();
}

/** True for the name of an attribute, which says by itself that it is one. */
function isDetail(name: string): boolean {
  return /^(?:[a-z]+ )+(?:of|on) /.test(name);
}

/** True for the definition of a column that has a type of any precision, and no more. */
function isCopied(definition: string): boolean {
  return !/\(| not null| identity | default | collate (?!"?default)/.test(definition);
}

/** Returns the names of tables with rows that a move leaves behind. */
export function rowsLeft({ schemas }: ForeignObjects): string[] {
  return schemas.map(({ schema, tables }) =>
    schema === 'pg_catalog' ? tables.join(', ') : `schema ${schema} (${named(tables)})`,
  );
}

/** Returns the names of all of the objects. */
function allNames(found: ForeignObjects): string[] {
  return [...rowsLeft(found), ...found.tables.map(name => `table public.${name}`), ...found.others];
}

const maxNamed = 5;

/** Lists at most five names for a sentence, with the number of further ones. */
export function named(names: readonly string[]): string {
  const more = names.length - maxNamed;
  return [...names.slice(0, maxNamed), ...(more > 0 ? [`${more} more`] : [])].join(', ');
}

/** The foreign objects of a database that is to be dropped. */
export interface Holdings {
  /** The names of all objects of others in the database. */
  readonly all: readonly string[];
  /** The tables among them with rows that no other database of the tenant has. */
  readonly rows: readonly string[];
}

/**
 * Reads the tables that would be lost with a database: the tables of other schemas, and those
 * of `public` that the current one lacks. A move has taken the tables of `public` along: a
 * table that the current one lacks was dropped since. The tables of a condemned database are
 * not needed either.
 * @param current undefined: the tenant has none
 * @returns nothing for a database that does not exist, or that nobody can connect to
 */
export async function readHoldings(
  installation: Installation,
  held: HeldDatabase & Pick<TenantDatabase, 'state' | 'keptBy'>,
  current: HeldDatabase | undefined,
): Promise<Holdings> {
  const found = await readForeignObjects(installation, held).catch(error => {
    if (['3D000', '55000'].includes(sqlState(error) ?? '')) return nothing;
    throw error;
  });
  const isLeft = held.state === 'filled' || (held.state === 'kept' && held.keptBy !== 'move');
  if (found.tables.length === 0 || !isLeft) return { all: allNames(found), rows: rowsLeft(found) };
  const kept = new Set(current ? (await readForeignObjects(installation, current)).tables : []);
  const missing = found.tables.filter(name => !kept.has(name)).map(name => `table public.${name}`);
  return { all: allNames(found), rows: [...rowsLeft(found), ...missing] };
}

/**
 * Returns the sessions of others in a database that is to be dropped, which ends them: each as
 * a plan names it.
 */
export async function readSessionNames(
  { servers }: Installation,
  held: HeldDatabase,
): Promise<string[]> {
  const sessions = await withConnection(servers.adminUrl(held.server), client =>
    readOtherSessions(client, held.database, [held.role]),
  );

  return sessions.map(session => `session ${sessionText(session)}`);
}

const nothing: ForeignObjects = { schemas: [], tables: [], others: [] };

/**
 * Returns the names that a plan shows; a sentence in their place when the server of the
 * database does not respond.
 */
export async function namesUnlessAway(
  read: () => Promise<readonly string[]>,
): Promise<readonly string[]> {
  return read().catch(error => {
    const reason = connectFailure(error);
    if (!reason) throw error;
    return [`what is not known, because the server cannot be used (${reason})`];
  });
}

/**
 * Returns the error of a command that refuses to drop a database with rows that are nowhere
 * else.
 */
export function notDroppedFor(
  { server, database }: { readonly server: { readonly name: string }; readonly database: string },
  rows: readonly string[],
): OperatorError {
  return new OperatorError(
    `Database ${database} on server ${server.name} was not dropped: it has rows that are nowhere else, in ` +
      `${named(rows)}. Save them (pg_dump), or let them go: the same command with --leave-schemas`,
  );
}
