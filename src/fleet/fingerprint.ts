import { createHash } from 'node:crypto';
import type pg from 'pg';

/** What a database's schema is, in a form that is the same on every server. */
export interface Fingerprint {
  /** SHA-256 of all objects, in hexadecimal. */
  hash: string;
  /** `index entities_status_id_index` → its definition, in alphabetical order. */
  objects: Map<string, string>;
}

/**
 * Everything in the schema `public`, as PostgreSQL itself writes it down: no owners, no OIDs, no positions, no rows. The
 * group of the tenants' login roles is called differently on each server; here it is `tenants`.
 */
const catalogue = `
  with relations as (
    select oid, relname as name, relkind, relowner, relacl, relpersistence, relrowsecurity, reloptions
      from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S', 'f')
  ), rights as (
    select 'table' as what, name, relowner as owner, relacl as acl from relations where relkind <> 'S'
    union all select 'sequence', name, relowner, relacl from relations where relkind = 'S'
    union all select 'column', r.name || '.' || attname, relowner, attacl
      from relations r join pg_attribute on attrelid = r.oid where attacl is not null and not attisdropped
    union all select 'function', oid::regprocedure::text, proowner, coalesce(proacl, acldefault('f', proowner))
      from pg_proc where pronamespace = 'public'::regnamespace
    union all select 'schema', nspname, nspowner, nspacl from pg_namespace where nspname = 'public'
  )
  select 'table' as kind, name, concat_ws(' ', relkind, relpersistence, case when relrowsecurity then 'rls' end, reloptions::text,
         case when relkind in ('v', 'm') then pg_get_viewdef(oid) end) as definition from relations where relkind <> 'S'
  union all
  select 'column', r.name || '.' || attname,
         concat_ws(' ', format_type(atttypid, atttypmod), case when attnotnull then 'not null' end, 'identity ' || nullif(attidentity::text, ''),
           'generated ' || nullif(attgenerated::text, ''), 'default ' || pg_get_expr(adbin, adrelid),
           case when attcollation <> typcollation then 'collate ' || (select collname from pg_collation c where c.oid = attcollation) end)
    from relations r join pg_attribute a on attrelid = r.oid and attnum > 0 and not attisdropped
    join pg_type t on t.oid = atttypid left join pg_attrdef d on adrelid = r.oid and adnum = attnum
   where relkind <> 'S'
  union all
  select 'sequence', name, concat_ws(' ', format_type(seqtypid, null), seqstart, seqincrement, seqmin, seqmax, seqcycle)
    from relations join pg_sequence on seqrelid = oid
  union all
  select 'constraint', concat_ws('.', conrelid::regclass, conname), pg_get_constraintdef(oid)
    from pg_constraint where connamespace = 'public'::regnamespace and contype not in ('n', 't')
  union all
  select 'index', c.relname, concat_ws(' ', pg_get_indexdef(indexrelid), case when not indisvalid then 'invalid' end)
    from pg_index join pg_class c on c.oid = indexrelid where c.relnamespace = 'public'::regnamespace
  union all
  select 'trigger', r.name || '.' || tgname, pg_get_triggerdef(t.oid) || ' ' || tgenabled::text
    from pg_trigger t join relations r on r.oid = tgrelid where not tgisinternal
  union all
  select 'policy', r.name || '.' || polname,
         concat_ws(' ', polcmd, polpermissive, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
    from pg_policy join relations r on r.oid = polrelid
  union all
  select 'function', oid::regprocedure::text, pg_get_functiondef(oid)
    from pg_proc where pronamespace = 'public'::regnamespace and prokind in ('f', 'p', 'w')
  union all
  select 'type', typname, concat_ws(' ', typtype, format_type(nullif(typbasetype, 0), typtypmod), typdefault,
         (select string_agg(enumlabel, ', ' order by enumsortorder) from pg_enum where enumtypid = t.oid))
    from pg_type t where typnamespace = 'public'::regnamespace and typtype in ('d', 'e', 'r')
  union all
  select 'extension', extname, extversion from pg_extension where extname <> 'plpgsql'
  union all
  select 'rights on ' || what, name || ' of ' || case when grantee = 0 then 'public' else
           regexp_replace(pg_get_userbyid(grantee), '^[a-z][a-z0-9_]{0,19}_tenant$', 'tenants') end,
         string_agg(privilege_type || case when is_grantable then ' grantable' else '' end, ', ' order by privilege_type)
    from rights, aclexplode(acl) where grantee <> owner and (what, grantee) <> ('schema', 0) group by 1, 2`;

/** Reads the schema of the database that `client` is connected to; also inside a transaction that changes it. */
export async function fingerprint(client: pg.Client): Promise<Fingerprint> {
  const { rows } = await client.query<{ kind: string; name: string; definition: string }>(catalogue);
  const objects = new Map<string, string>();
  for (const { kind, name, definition } of rows) objects.set(`${kind} ${name}`, definition);
  return fingerprintOf(objects);
}

/** The fingerprint of objects that were read before. */
export function fingerprintOf(objects: Map<string, string>): Fingerprint {
  const sorted = [...objects].sort(([a], [b]) => (a < b ? -1 : 1));
  return { hash: createHash('sha256').update(JSON.stringify(sorted)).digest('hex'), objects: new Map(sorted) };
}

/**
 * The first object, in alphabetical order, in which a database differs from what it should be, in words for an operator.
 * @returns undefined when there is none
 */
export function firstDifference(
  actual: Pick<Fingerprint, 'objects'>,
  expected: Pick<Fingerprint, 'objects'>,
): string | undefined {
  const names = [...new Set([...expected.objects.keys(), ...actual.objects.keys()])].sort();
  const name = names.find(each => actual.objects.get(each) !== expected.objects.get(each));
  if (name === undefined) return undefined;
  if (!actual.objects.has(name)) return `${name} is missing`;
  return expected.objects.has(name) ? `${name} is not as it should be` : `${name} should not be there`;
}
