import type pg from 'pg';
import { quoteLiteral } from './quote.ts';

/**
 * The extensions that migrations create. Other extensions, and the objects of any extension,
 * are no part of a schema.
 */
export const ownExtensions = ['pg_trgm'];

/**
 * Returns every object of the schema `public` with its definition as PostgreSQL prints it: no
 * owners, OIDs, column positions or rows. Objects of an extension are left out: the version of
 * the extension decides them. The group role of the tenants' logins has another name on each
 * server; here it is always `tenants`.
 *
 * Every run executes it in every database, on a new connection with empty caches. So it reads
 * each system catalog once, and from the long ones only the objects that are not PostgreSQL's
 * own (OIDs from 16384).
 */
export const objectsQuery = `
  with members as materialized (
    select classid, objid from pg_depend where refclassid = 'pg_extension'::regclass and deptype = 'e'
  ), relations as materialized (
    select oid, relname::text as name, relkind as kind, relowner as owner, relacl as acl,
           relpersistence, relrowsecurity, relforcerowsecurity, reloptions
      from pg_class
     where oid >= 16384 and relnamespace = 'public'::regnamespace
       and relkind in ('r', 'p', 'v', 'm', 'S', 'f', 'i', 'I')
       and not exists (select from members
                        where classid = 'pg_class'::regclass
                          and objid in (oid, (select indrelid from pg_index where indexrelid = oid)))
  ), tables as materialized (
    select * from relations where kind not in ('S', 'i', 'I')
  ), columns as materialized (
    select t.name || '.' || attname::text as name, owner, a.* from tables t
     cross join lateral
           (select * from pg_attribute where attrelid = t.oid and attnum > 0 and not attisdropped offset 0) a
  ), functions as materialized (
    select oid, oid::regprocedure::text as name, proowner as owner, proacl as acl, prokind
      from pg_proc where oid >= 16384 and pronamespace = 'public'::regnamespace
       and not exists (select from members where classid = 'pg_proc'::regclass and objid = oid)
  ), granted as (
    select case kind when 'S' then 'sequence' else 'table' end as what, name, owner, acl
      from relations where acl is not null
    union all select 'column', name, owner, attacl from columns where attacl is not null
    union all select 'function', name, owner, coalesce(acl, acldefault('f', owner)) from functions
    union all select 'schema', nspname::text, nspowner, nspacl from pg_namespace where nspname = 'public'
  ), rights as (
    select what, name, grantee,
           string_agg(privilege_type || case when is_grantable then ' grantable' else '' end, ', '
             order by privilege_type) as privileges
      from granted, aclexplode(acl)
     where grantee <> owner and (what, grantee) <> ('schema', 0)
     group by what, name, grantee
  )
  select 'table' as kind, name,
         concat_ws(' ', kind, relpersistence, case when relrowsecurity then 'rls' end,
         case when relforcerowsecurity then 'forced' end, reloptions::text,
         case when kind in ('v', 'm') then pg_get_viewdef(oid) end) as definition from tables
  union all
  select 'column', name, concat_ws(' ', format_type(atttypid, atttypmod), case when attnotnull then 'not null' end,
         'identity ' || nullif(attidentity::text, ''), 'generated ' || nullif(attgenerated::text, ''),
         case when atthasdef then
           (select 'default ' || pg_get_expr(adbin, adrelid)
              from pg_attrdef where adrelid = attrelid and adnum = attnum) end,
         'collate ' || nullif(attcollation, 0)::regcollation::text) from columns
  union all
  select 'sequence', name,
         (select concat_ws(' ', format_type(seqtypid, null), seqstart, seqincrement, seqmin, seqmax, seqcycle)
            from pg_sequence where seqrelid = oid) from relations where kind = 'S'
  union all
  select 'constraint', concat_ws('.', conrelid::regclass, conname), pg_get_constraintdef(oid)
    from pg_constraint where oid >= 16384 and connamespace = 'public'::regnamespace and contype not in ('n', 't')
     and not exists (select from members
                      where (classid, objid) in (('pg_class'::regclass, conrelid), ('pg_type'::regclass, contypid)))
  union all
  select 'index', name,
         (select concat_ws(' ', pg_get_indexdef(oid), case when not indisvalid then 'invalid' end)
            from pg_index where indexrelid = oid)
    from relations where kind in ('i', 'I')
  union all
  select 'trigger', t.name || '.' || tgname::text, pg_get_triggerdef(g.oid) || ' ' || tgenabled::text
    from pg_trigger g join tables t on t.oid = tgrelid where not tgisinternal
  union all
  select 'rule', t.name || '.' || rulename::text, pg_get_ruledef(r.oid) || ' ' || ev_enabled::text
    from pg_rewrite r join tables t on t.oid = ev_class where rulename <> '_RETURN'
  union all
  select 'policy', t.name || '.' || polname::text,
         concat_ws(' ', polcmd, polpermissive, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
    from pg_policy join tables t on t.oid = polrelid
  union all
  select 'function', name, pg_get_functiondef(oid) from functions where prokind in ('f', 'p', 'w')
  union all
  select 'type', typname::text, concat_ws(' ', typtype, format_type(nullif(typbasetype, 0), typtypmod), typdefault,
         (select string_agg(enumlabel, ', ' order by enumsortorder) from pg_enum where enumtypid = t.oid),
         (select string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod)), ', ' order by attnum)
            from pg_attribute where attrelid = typrelid and attnum > 0 and not attisdropped))
    from pg_type t where oid >= 16384 and typnamespace = 'public'::regnamespace
     and (typtype in ('d', 'e', 'r') or exists (select from pg_class where oid = typrelid and relkind = 'c'))
     and not exists (select from members where classid = 'pg_type'::regclass and objid = t.oid)
  union all
  select 'extension', extname::text, 'installed' from pg_extension
   where extname in (${ownExtensions.map(quoteLiteral).join(', ')})
  union all
  select 'rights on ' || what, name || ' of ' || case when grantee = 0 then 'public' else
           regexp_replace(pg_get_userbyid(grantee), '^[a-z][a-z0-9_]{0,19}_tenant$', 'tenants') end,
         privileges from rights`;

/**
 * SQL for the separators between the parts of an object and between objects. Neither occurs in
 * a name.
 */
const [unit, record] = ["E'\\x1f'", "E'\\x1e'"];

/**
 * Computes the hash in the server. The objects themselves are read only when the hash differs
 * from the expected one.
 */
const fingerprintQuery = `
  select encode(sha256(convert_to(string_agg(concat_ws(${unit}, kind, name, definition), ${record}
           order by kind collate "C", name collate "C", definition collate "C"), 'UTF8')), 'hex') as fingerprint
    from (${objectsQuery}) as objects`;

/**
 * Computes the fingerprint of the schema of the connected database; inside a transaction,
 * including its changes. Two databases have the same fingerprint if they have the same objects
 * with the same definitions.
 * @returns SHA-256 in hexadecimal
 */
export async function fingerprint(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ fingerprint: string }>(fingerprintQuery);
  return rows[0]?.fingerprint ?? '';
}

/**
 * Returns the objects behind a fingerprint: `index entities_status_id_index` → its definition.
 */
export async function schemaObjects(client: pg.Client): Promise<Map<string, string>> {
  const { rows } = await client.query<{ kind: string; name: string; definition: string }>(
    objectsQuery,
  );
  return new Map(rows.map(({ kind, name, definition }) => [`${kind} ${name}`, definition]));
}

/**
 * Identifies how fingerprints are computed. Fingerprints of different methods are not
 * comparable.
 */
export const fingerprintMethod = fingerprintQuery;

/** Maximum characters of a definition in the text of a difference. */
const maxLength = 600;

/** An object in which a database differs from the template. */
export interface Difference {
  /** `index entities_status_id_index` */
  readonly object: string;
  /**
   * The definition of the object in the database; undefined: the database has no such object.
   */
  readonly found: string | undefined;
  /**
   * The definition of the object in the template; undefined: the template has no such object.
   */
  readonly wanted: string | undefined;
}

/** Returns the objects in which a database differs from the template, in alphabetical order. */
export function differencesOf(
  actual: Map<string, string>,
  expected: Map<string, string>,
): Difference[] {
  const names = [...new Set([...expected.keys(), ...actual.keys()])].sort();

  return names
    .map(object => ({ object, found: actual.get(object), wanted: expected.get(object) }))
    .filter(({ found, wanted }) => found !== wanted);
}

/** Describes a difference for an operator, with the definition in both. */
export function differenceText({ object, found, wanted }: Difference): string {
  const [ofDatabase, ofTemplate] = [found, wanted].map(each =>
    each?.replace(/\s+/g, ' ').slice(0, maxLength),
  );
  if (found === undefined) return `${object} is missing, which is: ${ofTemplate}`;
  if (wanted === undefined) return `${object} is not part of it, which is: ${ofDatabase}`;

  return `${object} has another definition: ${ofDatabase}; the template has: ${ofTemplate}`;
}
