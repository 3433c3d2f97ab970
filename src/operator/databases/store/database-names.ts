import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import type { Prefixed } from '../../../control/control-entities.ts';

/*
 * The name of a database proves its owner. It has 48 random bits, and it is recorded in
 * `tenant_databases` before the database and its login role, which has the same name, are
 * created. So only this row leads to them: another installation on the server, also one with
 * the same prefix, does not draw the name, and neither does a control database that was
 * restored to an earlier time. Both are created as new ones: PostgreSQL refuses a name that
 * exists. The run then forgets its row, so that no row leads to a database of somebody else.
 */

/**
 * Returns a new name for a tenant's database and login role. It does not contain the slug,
 * because every login of the server can read the names of all databases and roles.
 * @param id of the database in `tenant_databases`, for people
 */
export function newPhysicalName({ prefix }: Prefixed, id: number): string {
  return `${prefix}_tenant_${id}_${randomBytes(6).toString('hex')}`;
}

/**
 * True for the form of names that `newPhysicalName` returns, and of those that a person gave to
 * a copy (`<prefix>_copy_81`); not for templates and other things. The form does not prove the
 * owner of a database.
 */
export function isPhysicalName({ prefix }: Prefixed, name: string): boolean {
  return new RegExp(`^${prefix}_[a-z][a-z0-9-]{0,30}[a-z0-9]_\\d+(_[0-9a-f]{12})?$`).test(name);
}

/** The database and its login role, as far as a server has them; null: it has none. */
export interface Remains {
  /** `broken`: a drop of it was interrupted, and it can only be dropped. */
  readonly database: 'open' | 'closed' | 'broken' | null;
  readonly role: { readonly mayLogIn: boolean } | null;
}

/** Finds what a server has with the names of a database and its login role. */
export async function findRemains(
  admin: pg.Client,
  { database, role }: { readonly database: string; readonly role: string },
): Promise<Remains> {
  const { rows } = await admin.query<{ [Field in keyof Remains]: Remains[Field] }>(
    `select (select case when datconnlimit = -2 then 'broken' when datallowconn then 'open' else 'closed' end
               from pg_database where datname = $1) as database,
            (select json_build_object('mayLogIn', rolcanlogin) from pg_roles where rolname = $2) as role`,
    [database, role],
  );

  return rows[0] ?? { database: null, role: null };
}

/** True if a server has lost a database; a half dropped database counts as lost. */
export function isLost({ database }: Remains): boolean {
  return database === null || database === 'broken';
}
