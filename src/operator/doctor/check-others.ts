import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { isNotifyFull } from '../../lib/postgres/database-error.ts';
import { quoteLiteral } from '../../lib/postgres/quote.ts';
import { reserveOf } from '../../tenancy/connections/share.ts';
import type { Report } from './finding.ts';

/*
 * Things that others on a server can fill, hold or lock, so that this installation stops: the
 * queue of notifications, connections, catalogs that all databases share, transactions that
 * nobody ends, and the write-ahead log. Each is reported with its owner, and ends when that
 * ends it.
 */

/** A session of the server. */
interface Session {
  readonly pid: number;
  /** Null for a process of the server itself. */
  readonly database: string | null;
  readonly login: string | null;
  readonly application: string;
}

/** The holders of these things at one moment. */
export interface OthersFacts {
  /**
   * The session that keeps the queue of notifications from being emptied; null if the server
   * has not named it; undefined while the queue is at most half full.
   */
  readonly queueHolder: Session | null | undefined;
  /** The sessions in databases that are not of this installation, by their owner. */
  readonly sessions: (Omit<Session, 'pid'> & { readonly count: number })[];
  readonly locks: (Session & { readonly catalog: string })[];
  readonly prepared: {
    readonly name: string;
    readonly login: string;
    readonly database: string;
    readonly since: string;
  }[];
  readonly slots: {
    readonly name: string;
    readonly database: string | null;
    /** The application and the login that read it; null if nobody does. */
    readonly reader: string | null;
    /** True if it ends with the session that has made it. */
    readonly isTemporary: boolean;
  }[];
}

/** The databases that are of this installation, and the use of the server. */
interface Own {
  readonly databases: readonly string[];
  /** True if its notifications are those of the control database. */
  readonly isControl: boolean;
}

/** A slot that nobody reads is reported when it holds more of the write-ahead log than this. */
const maxUnreadBytes = 1024 ** 3;

const sessionColumns = `a.pid, a.datname as database, a.usename as login, a.application_name as application`;

/**
 * Locks of catalogs that all databases share, in a mode in which a statement such as `create
 * database` or `alter role` waits; and that of notifications, which each commit with one takes.
 */
const locksText = `
  select distinct ${sessionColumns},
         case l.locktype when 'relation' then l.relation::regclass::text else 'the order of notifications' end as catalog
    from pg_locks l join pg_stat_activity a on a.pid = l.pid
   where l.database = 0 and l.granted and a.pid <> pg_backend_pid()
     and (l.locktype = 'relation' and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
          or l.locktype = 'object' and l.classid = 'pg_database'::regclass and l.objid = 0)
   order by a.pid`;

const sessionsText = `
  select datname as database, usename as login, application_name as application, count(*)::int as count
    from pg_stat_activity
   where datname is not null and datname <> all ($1) and pid <> pg_backend_pid()
   group by 1, 2, 3 order by count desc, 1, 2, 3`;

const preparedText = `
  select gid as name, owner::text as login, database::text,
         to_char(prepared at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since
    from pg_prepared_xacts where database <> all ($1) order by prepared`;

const slotsText = `
  select slot_name::text as name, database::text, temporary as "isTemporary",
         case when active then coalesce(nullif(a.application_name, ''), 'a session')
                || coalesce(' of login ' || a.usename, '') end as reader
    from pg_replication_slots s left join pg_stat_activity a on a.pid = active_pid
   where wal_status in ('extended', 'unreserved')
      or not active and wal_status = 'reserved' and not pg_is_in_recovery()
         and pg_wal_lsn_diff(case when not pg_is_in_recovery() then pg_current_wal_lsn() end, restart_lsn) > ${maxUnreadBytes}
   order by 1`;

/** Reads what others hold on the server of a connection. */
export async function readOthers(
  client: pg.Client,
  { databases, isControl }: Own,
): Promise<OthersFacts> {
  const read = async <Row extends object>(text: string, values: unknown[] = []): Promise<Row[]> =>
    (await client.query<Row>(text, values)).rows;
  const own = [...databases, client.database];

  return {
    queueHolder: isControl ? await readQueueHolder(client) : undefined,
    sessions: await read(sessionsText, [own]),
    locks: await read(locksText),
    prepared: await read(preparedText, [own]),
    slots: await read(slotsText),
  };
}

/** From this share on, PostgreSQL warns of its queue of notifications. */
const maxQueueShare = 0.5;
/** PostgreSQL gives its warning to one session every five seconds. */
const maxWarningMs = 7_000;
const warningRetryMs = 25;
/** Notifications of this channel reach nobody. */
const probeChannel = 'backoffice_doctor';

/**
 * Finds the session that keeps the queue from being emptied. No view shows it: PostgreSQL names
 * its process in the warning (01000) that a session gets which adds a notification.
 */
async function readQueueHolder(client: pg.Client): Promise<Session | null | undefined> {
  const { rows } = await client.query<{ share: number }>(
    'select pg_notification_queue_usage() as share',
  );
  if ((rows[0]?.share ?? 0) < maxQueueShare) return undefined;

  let pid: number | undefined;
  const onNotice = ({
    code,
    detail = '',
  }: {
    code?: string | undefined;
    detail?: string | undefined;
  }) => {
    if (code === '01000') pid = Number(/\d+/.exec(detail)?.[0]) || undefined;
  };
  client.on('notice', onNotice);

  const deadline = performance.now() + maxWarningMs;
  while (pid === undefined && performance.now() < deadline) {
    await client.query(`select pg_notify('${probeChannel}', '')`).catch(error => {
      if (!isNotifyFull(error)) throw error;
    });
    if (pid === undefined) await sleep(warningRetryMs);
  }
  client.off('notice', onNotice);

  const { rows: sessions } = await client.query<Session>(
    `select ${sessionColumns} from pg_stat_activity a where pid = $1`,
    [pid ?? null],
  );
  return sessions[0] ?? null;
}

/** Makes the reports of what others hold. Makes no query. */
export function checkOthers(
  facts: OthersFacts,
  connections: number,
  connectionBudget: number | undefined,
): Report[] {
  return [
    ...checkQueue(facts),
    ...checkConnections(facts, connections, connectionBudget),
    ...checkLocks(facts),
    ...checkPrepared(facts),
    ...checkSlots(facts),
  ];
}

function checkLocks({ locks }: OthersFacts): Report[] {
  return locks.map(({ catalog, ...session }): Report => {
    const held = `${sessionName(session)} holds a lock of ${catalog}, which all databases share`;
    return {
      check: 'catalog_locked',
      problem: `${held}: statements for databases and logins wait for it`,
      ...endSession(session),
    };
  });
}

function checkPrepared({ prepared }: OthersFacts): Report[] {
  return prepared.map(
    ({ name, login, database, since }): Report => ({
      check: 'prepared_transaction',
      problem:
        `the prepared transaction ${name} of login ${login} in database ${database} is open since ${since}: it holds ` +
        'back autovacuum and the feeds of all databases',
      remedy: 'Let its owner end it. Or end it yourself, which undoes what it has changed',
      statements: [`rollback prepared ${quoteLiteral(name)}`],
      kind: 'named',
      database,
      needsSuperuser: true,
    }),
  );
}

function checkSlots({ slots }: OthersFacts): Report[] {
  return slots.map(
    ({ name, database, reader, isTemporary }): Report => ({
      check: 'wal_held',
      problem:
        `replication slot ${name}${database === null ? '' : ` of database ${database}`} holds the write-ahead log, ` +
        `${reader === null ? 'and nobody reads it' : `because its reader ${reader} is behind`}: the log fills the disk of the server`,
      remedy: isTemporary
        ? 'Wait until its reader has ended, which removes it. Or end its reader'
        : `Start or hasten its reader. Or, if nobody needs it any more, ${reader === null ? '' : 'stop its reader where it runs, and '}drop it`,
      statements: dropOfSlot(name, { isRead: reader !== null, isTemporary }),
      kind: 'named',
      needsSuperuser: true,
    }),
  );
}

/** The time that the reader of a slot gets to end, in ms. */
const maxReaderEndMs = 5_000;

/**
 * Returns the statements that end a slot. PostgreSQL drops no slot that is read, and a temporary
 * one goes with its reader.
 */
function dropOfSlot(
  name: string,
  { isRead, isTemporary }: { isRead: boolean; isTemporary: boolean },
): string[] {
  const slot = quoteLiteral(name);
  const end =
    `select pg_terminate_backend(active_pid, ${maxReaderEndMs}) from pg_replication_slots ` +
    `where slot_name = ${slot} and active`;
  const drop = `select pg_drop_replication_slot(${slot})`;

  return [...(isRead ? [end] : []), ...(isTemporary ? [] : [drop])];
}

function checkQueue({ queueHolder: holder }: OthersFacts): Report[] {
  if (holder === undefined) return [];
  const consequence =
    'when it is full, no process of the service is ready, and no command changes anything';
  const check = 'notify_queue_held';

  if (holder === null) {
    return [
      {
        check,
        problem: `the queue of notifications is more than half full; ${consequence}`,
        remedy:
          'Find the session that listens and stays in a transaction, and end it: ' +
          `psql "$DATABASE_URL" -c 'select pid, datname, usename, application_name from pg_stat_activity order by xact_start'`,
      },
    ];
  }
  const held = `${sessionName(holder)} keeps the queue of notifications from being emptied, which is more than half full`;
  return [{ check, problem: `${held}; ${consequence}`, ...endSession(holder) }];
}

/**
 * Reports sessions of others that leave less than the budget and its reserve. The text has no
 * number that changes with each session.
 */
function checkConnections(
  { sessions }: OthersFacts,
  connections: number,
  connectionBudget: number | undefined,
): Report[] {
  const [most] = sessions;
  if (connectionBudget === undefined || !most) return [];

  const needed = connectionBudget + 2 * reserveOf(connectionBudget);
  const taken = sessions.reduce((sum, { count }) => sum + count, 0);
  if (connections < needed || connections - taken >= needed) return [];

  const { application, login, database } = most;
  return [
    {
      check: 'connections_taken',
      problem:
        `sessions in other databases leave fewer of the ${connections} connections than CONNECTION_BUDGET and commands ` +
        `need (${needed}); most are of ${ownerName(application, login, database)}`,
      remedy:
        'Limit that login (alter role, connection limit), or raise max_connections on the server and restart it.',
    },
  ];
}

function sessionName({ application, login, database, pid }: Session): string {
  return `${ownerName(application, login, database)} (pid ${pid})`;
}

function ownerName(application: string, login: string | null, database: string | null): string {
  const of = login === null ? '' : ` of login ${login}`;
  const inside = database === null ? '' : ` in database ${database}`;

  return `${application || 'a session'}${of}${inside}`;
}

function endSession({ pid }: Session): Omit<Report, 'check' | 'problem'> {
  return {
    remedy:
      'Let its owner end its transaction. Or end the session, which undoes what it has changed',
    statements: [`select pg_terminate_backend(${pid})`],
    kind: 'named',
    needsSuperuser: true,
  };
}
