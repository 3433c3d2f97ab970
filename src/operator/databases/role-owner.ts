import { createHash } from 'node:crypto';
import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import type { ControlDatabase } from '../../control/database.ts';
import { readInstallationIdentity } from '../../control/installation-id.ts';
import { quoteIdentifier, quoteLiteral } from '../../postgres/quote.ts';

type Prefixed = Pick<Server, 'prefix'>;

/**
 * Returns the name of a tenant's database and login role. It contains a number that is never used twice. It does not
 * contain the slug, because every login of the server can read the names of all databases and roles.
 */
export function physicalName({ prefix }: Prefixed, id: number): string {
  return `${prefix}_tenant_${id}`;
}

/**
 * True for a name that this installation gives to databases and roles of tenants, and for one of the same form that a
 * person gave to a copy (`<prefix>_copy_81`); not for templates and other things.
 */
export function isPhysicalName({ prefix }: Prefixed, name: string): boolean {
  return new RegExp(`^${prefix}_[a-z][a-z0-9-]{0,30}[a-z0-9]_\\d+$`).test(name);
}

/*
 * Two installations on one server may give the same names to databases and login roles. So each role has a comment that
 * says whose it is, and a database belongs to the owner of the role with its name: the role is created first, and
 * dropped last. Every login of the server can read the comment, so it has a digest.
 */

/**
 * Returns SQL that records in the comment of a login role to which tenant it belongs.
 * @param run the epoch of the run that opens or closes the role: no earlier run does either afterwards
 */
export function roleComment({ role, guid }: { role: string; guid: string }, run?: number): string {
  const text = [roleMark(guid), ...(run === undefined ? [] : [`run ${run}`])].join(' ');
  return `comment on role ${quoteIdentifier(role)} is ${quoteLiteral(text)}`;
}

/** Returns the first word of the comment of a login role of a tenant. */
export function roleMark(guid: string): string {
  return digest(guid);
}

/** What a server has of a database and its login role; null: it has none. */
export interface Remains {
  /** `broken`: a drop of it was interrupted, and it can only be dropped. */
  readonly database: 'open' | 'closed' | 'broken' | null;
  readonly role: { readonly comment: string | null; readonly mayLogIn: boolean } | null;
}

export async function findRemains(
  admin: pg.Client,
  { database, role }: { readonly database: string; readonly role: string },
): Promise<Remains> {
  const { rows } = await admin.query<{ [Field in keyof Remains]: Remains[Field] }>(
    `select (select case when datconnlimit = -2 then 'broken' when datallowconn then 'open' else 'closed' end
               from pg_database where datname = $1) as database,
            (select json_build_object('comment', shobj_description(oid, 'pg_authid'), 'mayLogIn', rolcanlogin)
               from pg_roles where rolname = $2) as role`,
    [database, role],
  );
  return rows[0] ?? { database: null, role: null };
}

/** Returns whether a server has lost a database: also one that is half dropped. */
export function isLost({ database }: Remains): boolean {
  return database === null || database === 'broken';
}

/** Who may own a role. */
export interface RoleOwners {
  /** The tenant; undefined: none has the role yet. */
  readonly guid: string | undefined;
  /** What `warmMark` returns. */
  readonly warm: string;
}

/** Returns the comment of the login role of a warm database: the digest of the id of the installation. */
export async function warmMark(control: ControlDatabase): Promise<string> {
  return digest(`installation ${(await readInstallationIdentity(control)).id}`);
}

/** Returns SQL that records in the comment of a login role that it is that of a warm database. */
export function warmComment(role: string, mark: string): string {
  return `comment on role ${quoteIdentifier(role)} is ${quoteLiteral(mark)}`;
}

/** Returns whether a role with that comment belongs to the tenant, or to a warm database of this installation. */
export function isOwnRole(comment: string | null, { guid, warm }: RoleOwners): boolean {
  const mark = comment?.split(' ')[0];
  return mark === warm || (guid !== undefined && mark === roleMark(guid));
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
