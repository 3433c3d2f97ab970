import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { quoteIdentifier } from '../../lib/postgres/quote.ts';

/** A session of somebody else in a database, such as that of an agent of monitoring. */
export interface OtherSession {
  readonly pid: number;
  /** The `application_name` of the session; empty if it has none. */
  readonly application: string;
  readonly login: string;
  /** ISO 8601; null if the login of this connection may not see it. */
  readonly since: string | null;
  /** True if the login of this connection may end the session. */
  readonly mayEnd: boolean;
  /** True if only a superuser may end the session. */
  readonly isSuperuser: boolean;
}

const maxEndMs = 5_000;
const pollMs = 20;

const sessionsQuery = `
  select pid, application_name as application, usename as login, ${isoTime('backend_start')} as since,
         rolsuper as "isSuperuser",
         current_setting('is_superuser')::boolean
           or not rolsuper and (pg_has_role(r.oid, 'usage') or pg_has_role('pg_signal_backend', 'usage')) as "mayEnd"
    from pg_stat_activity join pg_roles r on r.oid = usesysid
   where datname = $1 and pid <> pg_backend_pid() and usename <> all ($2)
     and application_name not like 'backoffice-move%'
   order by pid`;

/**
 * Returns the sessions of others in a database: not that of this connection, and none of a run
 * that moves the tenant.
 * @param own login roles whose sessions do not count: that of the tenant
 */
export async function readOtherSessions(
  client: pg.Client,
  database: string,
  own: readonly string[] = [],
): Promise<OtherSession[]> {
  // Until the snapshot is cleared, a transaction sees the sessions that its first query
  // returned.
  await client.query('select pg_stat_clear_snapshot()');

  return (await client.query<OtherSession>(sessionsQuery, [database, own])).rows;
}

/**
 * Ends those sessions of others in a database that the login may end, and waits at most 5 s
 * until all that were there are gone. An agent that connects again at once is a new session.
 * @returns the sessions that are still there
 */
export async function endOtherSessions(
  client: pg.Client,
  database: string,
  own: readonly string[] = [],
): Promise<OtherSession[]> {
  const first = await readOtherSessions(client, database, own);
  const pids = new Set(first.map(({ pid }) => pid));

  for (const deadline = performance.now() + maxEndMs; ; await sleep(pollMs)) {
    const left = (await readOtherSessions(client, database, own)).filter(({ pid }) =>
      pids.has(pid),
    );
    if (left.length === 0 || performance.now() > deadline) return left;

    const ending = left.filter(({ mayEnd }) => mayEnd).map(({ pid }) => pid);
    await client.query('select pg_terminate_backend(pid) from unnest($1::int[]) as pid', [ending]);
  }
}

/**
 * Names a session: `datadog-agent of login monitor (pid 4711, since 2026-01-05T09:30:00.000Z)`.
 */
export function sessionText({ application, login, pid, since }: OtherSession): string {
  return `${application || 'a session'} of login ${login} (pid ${pid}${since ? `, since ${since}` : ''})`;
}

const maxNamed = 5;

/** Names sessions in a sentence, at most five of them. */
export function sessionsText(sessions: readonly OtherSession[]): string {
  const more = sessions.length - maxNamed;
  const names = sessions.slice(0, maxNamed).map(sessionText);

  return [...names, ...(more > 0 ? [`${more} more`] : [])].join(', ');
}

/**
 * Returns the error of a command that sessions stop which its login may not end.
 * @param client with the login of the command
 * @param what the beginning of the sentence: what the command could not do
 */
export function sessionsLeft(
  client: pg.Client,
  what: string,
  sessions: readonly OtherSession[],
): OperatorError {
  const login = client.user ?? '';
  const pids = sessions.map(({ pid }) => `pg_terminate_backend(${pid})`).join(', ');
  const who = sessions.some(({ isSuperuser }) => isSuperuser)
    ? `End them as a superuser of the server (select ${pids})`
    : `End them as a superuser of the server (select ${pids}), or let login ${login} end them: ` +
      `grant pg_signal_backend to ${quoteIdentifier(login)}`;

  return new OperatorError(
    `${what}: others are connected to it, and login ${login} may not end their sessions: ` +
      `${sessionsText(sessions)}. ${who}. Then run the command again`,
  );
}
