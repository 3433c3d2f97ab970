import type pg from 'pg';
import type { Report } from './finding.ts';

/** The functions of PostgreSQL that create or change large objects and that PUBLIC may execute by default. */
const writers = [
  ...['lo_creat(integer)', 'lo_create(oid)', 'lo_from_bytea(oid, bytea)', 'lo_put(oid, bigint, bytea)'],
  ...['lo_open(oid, integer)', 'lowrite(integer, bytea)', 'lo_truncate(integer, integer)'],
  ...['lo_truncate64(integer, bigint)', 'lo_unlink(oid)'],
].map(name => `pg_catalog.${name}`);

const granted = `
  select string_agg(writer, ', ') as functions from unnest($1::text[]) as writer join pg_proc p on p.oid = writer::regprocedure
   where exists (select from aclexplode(coalesce(proacl, acldefault('f', proowner))) where grantee = 0)
     and (select rolsuper from pg_database join pg_roles r on r.oid = datdba where datname = current_database())`;

/**
 * Checks that a login of the database, such as that of the tenant, cannot store large objects, which neither a limit nor
 * an archive of the tenant covers. Only a superuser can revoke that, so a database whose owner is none has no finding.
 * @param client on the tenant's database
 */
export async function checkLargeObjects(client: pg.Client, report: (report: Report) => void): Promise<void> {
  const { rows } = await client.query<{ functions: string | null }>(granted, [writers]);
  const functions = rows[0]?.functions;
  if (functions)
    report({
      check: 'excess_rights',
      problem: `PUBLIC may store large objects: it may execute ${functions.replaceAll('pg_catalog.', '')}`,
      remedy: 'Revoke EXECUTE on these functions from PUBLIC',
      statements: [`revoke execute on function ${functions} from public`],
      needsSuperuser: true,
    });
}
