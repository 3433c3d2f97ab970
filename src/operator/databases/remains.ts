import type pg from 'pg';
import { roleMarks } from './role-owner.ts';

/** What a server has of a database and its role. */
export interface Remains {
  /** True if the database exists, and is not half dropped. */
  exists: boolean;
  /** True if the login role belongs to the tenant: another installation may use the same names. */
  hasRole: boolean;
}

/** Returns what a server still has of a database of a tenant. */
export async function findRemains(
  admin: pg.Client,
  { database, role }: { readonly database: string; readonly role: string },
  guid: string,
): Promise<Remains> {
  const { rows } = await admin.query<Remains>(
    `select exists (select from pg_database where datname = $1 and datconnlimit <> -2) as exists,
            exists (select from pg_roles
                     where rolname = $2 and split_part(shobj_description(oid, 'pg_authid'), ' ', 1) = any ($3)) as "hasRole"`,
    [database, role, roleMarks(guid)],
  );
  return rows[0] ?? { exists: false, hasRole: false };
}
