import type pg from 'pg';
import { quoteLiteral } from './quote.ts';
import { objectsQuery, ownExtensions } from './schema-fingerprint.ts';

/**
 * SQL for the options that a statement has given a column (`n_distinct`); null: none. From the
 * minor releases of November 2026 on (17.12), PostgreSQL stores a version of the column among
 * them, `pg_attver`, which is another one in each database.
 */
const columnOptions = `
  case when attoptions is not null then
    (select array_agg(option)::text from unnest(attoptions) as option
      where not starts_with(option, 'pg_'))
  end`;

/**
 * The attributes of objects that are no part of a fingerprint, because they change no data and
 * no behaviour of a migration: comments, owners, storage, statistics, replica identity and the
 * like. A line exists only where an attribute is not the default of PostgreSQL. `options of
 * database` are those of the connected one; the rights are those on PostgreSQL's own objects
 * that are not as `initdb` makes them.
 */
const detailsQuery = `
  with members as materialized (
    select classid, objid from pg_depend where refclassid = 'pg_extension'::regclass and deptype = 'e'
  ), owner as (
    select datdba as oid from pg_database where datname = current_database()
  ), relations as materialized (
    select c.*, relname::text as name,
           case relkind when 'S' then 'sequence' when 'i' then 'index' when 'I' then 'index' else 'table' end as kind
      from pg_class c
     where oid >= 16384 and relnamespace = 'public'::regnamespace
       and relkind in ('r', 'p', 'v', 'm', 'S', 'f', 'i', 'I')
       and not exists (select from members
                        where classid = 'pg_class'::regclass
                          and objid in (c.oid, (select indrelid from pg_index where indexrelid = c.oid)))
  ), noted as (
    select classoid, objoid, objsubid, 'comment on ' as what, description as text from pg_description
     where objoid >= 16384 or objoid = 'public'::regnamespace
    union all
    select classoid, objoid, objsubid, provider || ' label of ', label from pg_seclabel
  ), details as (
    select what || o.type as kind, o.identity as name, text as definition
      from noted, lateral pg_identify_object(classoid, objoid, objsubid) as o
     where coalesce(o.schema, 'public') = 'public' and classoid <> 'pg_extension'::regclass
       and not exists (select from members where (classid, objid) = (classoid, objoid))
    union all
    select 'options of ' || kind, name,
           concat_ws(' ',
             'owner ' || case when kind <> 'index' then pg_get_userbyid(nullif(relowner, (select oid from owner))) end,
             'method ' || (select amname from pg_am where oid = relam and amname not in ('heap') and kind = 'table'),
             'tablespace ' || (select spcname from pg_tablespace where oid = reltablespace),
             'replica identity ' || case when relreplident not in ('d', 'n') or relreplident = 'n' and relkind in ('r', 'p')
                                      then relreplident::text end,
             'toast ' || (select reloptions::text from pg_class t where t.oid = relations.reltoastrelid),
             (select concat_ws(' ', case when indisclustered then 'clustered' end,
                                    case when indisreplident then 'replica identity' end)
                from pg_index where indexrelid = relations.oid and (indisclustered or indisreplident)),
             'inherits ' || (select string_agg(inhparent::regclass::text, ', ' order by inhseqno)
                               from pg_inherits where inhrelid = relations.oid),
             'of ' || nullif(reloftype, 0)::regtype::text,
             'cache ' || (select nullif(seqcache, 1) from pg_sequence where seqrelid = relations.oid)) from relations
    union all
    select 'options of column', name || '.' || attname::text,
           concat_ws(' ', 'storage ' || nullif(attstorage, typstorage)::text, 'compression ' || nullif(attcompression::text, ''),
             'statistics ' || nullif(attstattarget, -1),
             ${columnOptions}, attfdwoptions::text)
      from relations cross join lateral
           (select * from pg_attribute where attrelid = relations.oid and attnum > 0 and not attisdropped offset 0) a
           left join pg_type t on t.oid = atttypid
    union all
    select 'state of foreign key', r.name || '.' || conname::text, string_agg(distinct tgenabled::text, '')
      from pg_trigger join relations r on r.oid = tgrelid join pg_constraint k on k.oid = tgconstraint
     where tgisinternal and tgenabled <> 'O' group by 2
    union all
    select 'state of constraint', r.name || '.' || conname::text, 'not validated'
      from pg_constraint join relations r on r.oid = conrelid where contype = 'n' and not convalidated
    union all
    select 'roles of policy', r.name || '.' || polname::text,
           (select string_agg(pg_get_userbyid(role), ', ' order by 1) from unnest(polroles) as role where role <> 0)
      from pg_policy join relations r on r.oid = polrelid
    union all
    select 'owner of function', oid::regprocedure::text, pg_get_userbyid(nullif(proowner, (select oid from owner)))
      from pg_proc
     where oid >= 16384 and pronamespace = 'public'::regnamespace
       and not exists (select from members where classid = 'pg_proc'::regclass and objid = pg_proc.oid)
    union all
    select 'version of extension', extname::text, extversion from pg_extension
     where extname in (${ownExtensions.map(quoteLiteral).join(', ')})
    union all
    select 'rights on function', p.oid::regprocedure::text, coalesce(proacl::text, 'default')
      from pg_proc p left join pg_init_privs i on (i.classoid, i.objoid, i.objsubid) = ('pg_proc'::regclass, p.oid, 0)
     where p.oid < 16384 and (proacl is not null or p.oid in (select objoid from pg_init_privs))
       and proacl is distinct from initprivs
    union all
    select 'rights on table', c.oid::regclass::text, coalesce(relacl::text, 'default')
      from pg_class c left join pg_init_privs i on (i.classoid, i.objoid, i.objsubid) = ('pg_class'::regclass, c.oid, 0)
     where c.oid < 16384 and relacl is distinct from initprivs
    union all
    select 'rights on type', t.oid::regtype::text, typacl::text from pg_type t
     where (oid < 16384 or typnamespace = 'public'::regnamespace) and typacl is not null
    union all
    select 'rights on language', lanname::text, lanacl::text from pg_language where lanacl is not null
    union all
    select 'options of', 'database', concat_ws(' ', 'connection limit ' || nullif(datconnlimit, -1),
             'tablespace ' || (select spcname from pg_tablespace where oid = dattablespace),
             'comment ' || shobj_description(oid, 'pg_database'))
      from pg_database where datname = current_database()
  )
  select kind || ' ' || name as name, definition from details where definition <> ''`;

/** Identifies how details are read. Those of different methods are not comparable. */
export const detailsMethod = detailsQuery;

/**
 * Returns the details of the connected database: `options of column currencies.name` → its
 * text.
 */
export async function schemaDetails(client: pg.Client): Promise<Map<string, string>> {
  const { rows } = await client.query<{ name: string; definition: string }>(detailsQuery);
  return new Map(rows.map(({ name, definition }) => [name, definition]));
}

/**
 * Computes a digest of the objects and the details of the connected database, in the server: it
 * takes less than to read them. Two databases with the same digest have the same of both.
 * @returns SHA-256 in hexadecimal
 */
export async function digestOfDetails(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ digest: string }>(
    `select encode(sha256(convert_to(string_agg(concat_ws(E'\\x1f', name, definition), E'\\x1e'
              order by name collate "C", definition collate "C"), 'UTF8')), 'hex') as digest
       from (select kind || ' ' || name as name, definition from (${objectsQuery}) as objects
             union all (${detailsQuery})) as named`,
  );
  return rows[0]?.digest ?? '';
}
