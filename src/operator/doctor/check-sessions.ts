import type pg from 'pg';
import { reserveOf } from '../../tenancy/connections/share.ts';
import type { Report } from './finding.ts';

/** The sessions of the logins of tenants on a server. */
interface TenantSessions {
  readonly count: number;
  /** True if this command reaches the server through a pooler. */
  readonly isPooled: boolean;
}

/** Counts the sessions on the server of a connection. Any login may see these columns. */
export async function readTenantSessions(
  client: pg.Client,
  roles: readonly string[],
): Promise<TenantSessions> {
  const { rows } = await client.query<{ backend: number; count: number }>(
    `select pg_backend_pid() as backend,
            (select count(*)::int from pg_stat_activity where usename = any ($1)) as count`,
    [roles],
  );
  const [{ backend, count } = { backend: 0, count: 0 }] = rows;

  // A pooler gives a connection a number of its own, a server that of its process.
  return { count, isPooled: 'processID' in client && client.processID !== backend };
}

/**
 * Reports a pooler that keeps the sessions of connections which the service has closed to make
 * room: when the server has none left, tenants get 503, although the processes keep to
 * `CONNECTION_BUDGET`. The text has no number that changes with each session. Makes no query.
 */
export function checkSessions(
  { count, isPooled }: TenantSessions,
  connectionBudget: number | undefined,
): Report[] {
  if (connectionBudget === undefined) return [];

  // Without a pooler, a process that starts, and one that is paused, may have some above it.
  const allowed = connectionBudget + (isPooled ? 0 : 2 * reserveOf(connectionBudget));
  if (count <= allowed) return [];

  const settings =
    'set server_idle_timeout = 1 and server_login_retry = 1 in its file, and let it read the file again (RELOAD)';
  return [
    {
      check: 'pooler_keeps_sessions',
      problem:
        `the logins of tenants have more than ${allowed} sessions on the server, and CONNECTION_BUDGET is ${connectionBudget}: ` +
        'a pooler keeps those that the service has closed, and tenants get 503 when the server has none left',
      remedy: isPooled
        ? `In the pooler between this host and the server, such as PgBouncer, ${settings}.`
        : `If the service reaches the server through a pooler, such as PgBouncer, ${settings}. Otherwise find out who ` +
          `else logs in as them: psql "$DATABASE_URL" -c 'select usename, application_name, count(*) from pg_stat_activity group by 1, 2 order by 3 desc'`,
    },
  ];
}
