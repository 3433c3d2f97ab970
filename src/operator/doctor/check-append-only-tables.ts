import type pg from 'pg';
import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { appendOnlyTables } from '../schema/tenant-tables.ts';
import type { Report } from './finding.ts';

/** Grants to the role, or to a role whose privileges it has, or to PUBLIC. Grants on single columns count too. */
const excessGrants = `
  with granted as (
    select relname, relowner, (aclexplode(relacl)).* from pg_class
     where relnamespace = 'public'::regnamespace and relname = any ($2)
    union all
    select relname, relowner, (aclexplode(attacl)).* from pg_attribute join pg_class c on c.oid = attrelid
     where relnamespace = 'public'::regnamespace and relname = any ($2) and attacl is not null
  )
  select case grantee when 0 then 'public' else pg_get_userbyid(grantee) end as grantee, relname as "table",
         string_agg(distinct privilege_type, ', ' order by privilege_type) as privileges
    from granted
   where privilege_type in ('UPDATE', 'DELETE', 'TRUNCATE')
     and grantee <> relowner and (grantee = 0 or pg_has_role($1, grantee, 'usage'))
   group by 1, 2 order by 1, 2`;

/**
 * Checks that a login role of a tenant cannot change the append-only tables.
 * @param client on the tenant's database
 */
export async function checkAppendOnlyTables(
  client: pg.Client,
  role: string,
  report: (report: Report) => void,
): Promise<void> {
  const { rows } = await client.query<{ grantee: string; table: string; privileges: string }>(excessGrants, [
    role,
    appendOnlyTables,
  ]);
  for (const { grantee, table, privileges } of rows) {
    const to = grantee === 'public' ? 'PUBLIC' : `role ${grantee}`;
    report({
      check: 'excess_rights',
      problem: `${to} has ${privileges} on ${table}, which is append-only`,
      remedy: `Revoke ${privileges} on ${table} from ${to === 'PUBLIC' ? to : grantee}`,
      statements: [`revoke ${privileges} on ${table} from ${grantee === 'public' ? grantee : quote(grantee)}`],
    });
  }
}
