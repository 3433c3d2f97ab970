import type pg from 'pg';
import { databaseUrl } from '../../control/server-urls.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { errorText } from '../command/texts.ts';

/** A login of PostgreSQL, and the database that it connects to. */
export interface Login {
  readonly role: string;
  readonly database: string;
  readonly password: string;
}

/** The reason why a server refuses a login, as its catalog says. */
export interface LoginFault {
  readonly kind: 'nologin' | 'ended' | 'limit' | 'connect';
  /** A clause that has the names of the role and of the database. */
  readonly problem: string;
  /** The statements that end the fault, for the owner of the role or a superuser. */
  readonly statements: readonly string[];
}

/** Facts of the catalog about a login and a database. */
interface LoginFacts {
  mayLogIn: boolean;
  hasEnded: boolean;
  endsAt: string | null;
  roleLimit: number;
  roleSessions: number;
  databaseLimit: number;
  databaseSessions: number;
  mayConnect: boolean;
}

/** SQL: the end of the password of a role, or null if it has none. */
export const passwordEnd = 'case when isfinite(rolvaliduntil) then rolvaliduntil end';

/** SQL: true for a client's session, whose kind only superusers and `pg_read_all_stats` see. */
const ofClient =
  "usesysid is not null and coalesce(backend_type, 'client backend') = 'client backend'";

const factsQuery = `
  select rolcanlogin as "mayLogIn", coalesce(rolvaliduntil < now(), false) as "hasEnded",
         ${isoTime(passwordEnd)} as "endsAt", rolconnlimit as "roleLimit",
         (select count(*) from pg_stat_activity where usesysid = r.oid and ${ofClient})::int as "roleSessions",
         datconnlimit as "databaseLimit",
         (select count(*) from pg_stat_activity a where a.datid = d.oid and ${ofClient})::int as "databaseSessions",
         has_database_privilege(r.oid, d.oid, 'connect') as "mayConnect"
    from pg_roles r join pg_database d on datname = $2
   where rolname = $1`;

/**
 * SQLSTATEs of a refused login, a limit of connections and a missing CONNECT, and the one that a
 * pooler has for all refusals of its server.
 */
const refusals = /^(28|42501|53300|08P01)/;

/** True for the error of a server that has, or whose pooler may have, refused a login. */
export function isRefusedLogin(error: unknown): boolean {
  return refusals.test(sqlState(error) ?? '');
}

/**
 * Returns the reason why a server refuses a login; undefined if the catalog has none: then the
 * password is wrong, or `pg_hba.conf` does not admit it.
 * @param client with another login
 */
export async function findLoginFault(
  client: pg.ClientBase,
  { role, database }: Pick<Login, 'role' | 'database'>,
): Promise<LoginFault | undefined> {
  const { rows } = await client.query<LoginFacts>(factsQuery, [role, database]);
  const [facts] = rows;
  if (!facts) return undefined;

  const name = quote(role);
  if (!facts.mayLogIn) {
    return {
      kind: 'nologin',
      problem: `role ${role} may not log in`,
      statements: [`alter role ${name} login`],
    };
  }
  if (facts.hasEnded) {
    return {
      kind: 'ended',
      problem: `the password of role ${role} was valid until ${facts.endsAt}`,
      statements: [`alter role ${name} valid until 'infinity'`],
    };
  }
  if (isReached(facts.roleLimit, facts.roleSessions)) {
    return {
      kind: 'limit',
      problem: `role ${role} may have ${facts.roleLimit} connections at a time`,
      statements: [`alter role ${name} connection limit -1`],
    };
  }
  if (isReached(facts.databaseLimit, facts.databaseSessions)) {
    return {
      kind: 'limit',
      problem: `database ${database} may have ${facts.databaseLimit} connections at a time`,
      statements: [`alter database ${quote(database)} connection limit -1`],
    };
  }
  if (!facts.mayConnect) {
    return {
      kind: 'connect',
      problem: `role ${role} has no CONNECT on database ${database}`,
      statements: [`grant connect on database ${quote(database)} to ${name}`],
    };
  }
  return undefined;
}

/** @param limit -1: there is none */
function isReached(limit: number, sessions: number): boolean {
  return limit >= 0 && sessions >= limit;
}

/**
 * Logs in, so that a command that has made or changed a login does not report success for one
 * that its server refuses.
 * @param adminUrl URL of the server with another login, which may read its catalog
 * @throws {OperatorError} that names the reason of the refusal
 */
export async function requireLogin(adminUrl: string, login: Login): Promise<void> {
  const { role, database, password } = login;
  const url = databaseUrl(adminUrl, database, { user: role, password });
  try {
    await withConnection(url, async () => {}, { kind: 'probe' });
  } catch (cause) {
    if (!isRefusedLogin(cause)) throw cause;

    throw await withConnection(adminUrl, client => refusedLoginError(client, login, cause));
  }
}

/**
 * Returns the error of a refused login, with the statements that end the refusal.
 * @param client with another login
 * @param cause the refusal; undefined: the login has not been tried
 */
export async function refusedLoginError(
  client: pg.ClientBase,
  login: Pick<Login, 'role' | 'database'>,
  cause?: unknown,
): Promise<OperatorError> {
  const fault = await findLoginFault(client, login);
  const text = `The server refuses the login ${login.role}: ${fault?.problem ?? errorText(cause)}`;
  const remedy = fault
    ? `As its owner or as a superuser: ${fault.statements.join('; ')};`
    : 'Let pg_hba.conf of the server admit it from this machine with scram-sha-256';

  return new OperatorError(`${text}. ${remedy}`, { cause });
}
