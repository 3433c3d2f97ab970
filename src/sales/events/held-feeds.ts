import type { Logger } from 'pino';
import { preparedStatement, type RunStatement } from '../../lib/postgres/statement.ts';

/**
 * The oldest transaction that holds back changes of a tenant: it is open, and has changed
 * something before them.
 */
export interface FeedHolder {
  /** The process id of the session; null for a prepared transaction, which has none. */
  readonly pid: number | null;
  /** The `application_name` of the session, or the identifier of a prepared transaction. */
  readonly application: string;
  readonly login: string;
  /** The database of a prepared transaction, which can be another one of the server. */
  readonly database: string;
  /**
   * The age of the transaction, or the wait of the first change, if that is longer or the only
   * time that is known.
   */
  readonly seconds: number;
  /** The moment at which the transaction or the wait began, as ISO 8601. */
  readonly since: string;
}

/** From this age on, a transaction that holds back changes is shown. */
const maxHeldSeconds = 30;

/**
 * Selects the holder of the feed; no row while nothing is held back, or while neither a session
 * nor a prepared transaction has the id at which the feed stands. The login of a tenant does
 * not see when transactions of other logins began, so the time of the first waiting change,
 * which has the lowest place, stands in for it.
 */
const holderText = `
  with feed as materialized (select * from current_feed(pg_current_snapshot())),
  held as (
    select least(
      (select created_at from activities t
        where t.feed_era is not null and (t.feed_era, t.feed_xid) >= (feed.era, feed.horizon)
        order by t.feed_era, t.feed_xid, t.id limit 1),
      (select created_at from audit_log t
        where t.feed_era is not null and (t.feed_era, t.feed_xid) >= (feed.era, feed.horizon)
        order by t.feed_era, t.feed_xid, t.id limit 1)) as since
      from feed where is_held
  ), holder as (
    select l.pid, a.application_name, a.usesysid, a.xact_start, held.since, feed.horizon::xid as xid
      from feed cross join held
      join pg_locks l on feed.horizon < feed.next_xid and l.locktype = 'transactionid'
                     and l.mode = 'ExclusiveLock' and l.granted and l.transactionid = feed.horizon::xid
      left join lateral pg_stat_get_activity(l.pid) a on l.pid is not null
  ), dated as (
    select h.pid, coalesce(nullif(h.application_name, ''), p.gid, 'a session') as application,
           coalesce(pg_get_userbyid(h.usesysid)::text, p.owner::text, '') as login,
           coalesce(p.database, current_database())::text as database,
           least(h.xact_start, p.prepared, h.since) as since
      from holder h left join pg_prepared_xacts p on h.pid is null and p.transaction = h.xid
     where h.pid is not null or p.gid is not null
  )
  select pid::int, application, login, database, extract(epoch from clock_timestamp() - since)::float8 as seconds,
         to_char(since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since
    from dated order by pid nulls first limit 1`;

/**
 * Reads the transaction that holds back the changes of the connected database; undefined for a
 * transaction that is younger than `maxHeldSeconds`.
 */
export async function readFeedHolder(read: RunStatement): Promise<FeedHolder | undefined> {
  const [holder] = await read(preparedStatement<FeedHolder>(holderText, []));

  return holder && holder.seconds >= maxHeldSeconds ? holder : undefined;
}

/** Names the holder: `Desktop Tool of login ann (pid 4711)`. */
export function holderName({ application, login, pid }: FeedHolder): string {
  return pid === null
    ? `the prepared transaction ${application} of login ${login}`
    : `${application} of login ${login} (pid ${pid})`;
}

interface HeldFeed {
  /** The moment at which the feed was first found held. */
  readonly foundAt: number;
  notedAt: number;
  readAt: number;
  holder: FeedHolder | undefined;
}

/**
 * The holder of a feed is read again after this time. A feed that nobody reads any more is
 * forgotten after three times that.
 */
const readMs = 10_000;

/** The feeds of tenants, as this process reads them, that a transaction holds back. */
export class HeldFeeds {
  readonly #log: Pick<Logger, 'warn'>;
  readonly #now: () => number;
  readonly #feeds = new Map<string, HeldFeed>();

  /** @param now milliseconds of a clock that is never set */
  constructor(log: Pick<Logger, 'warn'>, now: () => number = () => performance.now()) {
    this.#log = log;
    this.#now = now;
  }

  /** The oldest transaction that holds back changes of any tenant. */
  get oldest(): FeedHolder | undefined {
    const now = this.#now();
    for (const [tenant, { notedAt }] of this.#feeds) {
      if (now - notedAt > 3 * readMs) this.#feeds.delete(tenant);
    }
    const holders = [...this.#feeds.values()].flatMap(({ holder }) => holder ?? []);

    return holders.sort((one, other) => other.seconds - one.seconds)[0];
  }

  /**
   * Notes whether a page of the feed was held. Reads and logs the holder of a feed that has
   * been held for 30 s.
   */
  async note(tenant: string, isHeld: boolean, read: RunStatement): Promise<void> {
    const now = this.#now();
    if (!isHeld) {
      this.#feeds.delete(tenant);
      return;
    }

    const feed = this.#feeds.get(tenant) ?? {
      foundAt: now,
      notedAt: now,
      readAt: Number.NEGATIVE_INFINITY,
      holder: undefined,
    };
    this.#feeds.set(tenant, feed);
    feed.notedAt = now;
    if (now - feed.foundAt < maxHeldSeconds * 1_000 || now - feed.readAt < readMs) return;

    feed.readAt = now;
    const before = feed.holder;
    feed.holder = await readFeedHolder(read).catch(() => undefined);
    if (feed.holder && feed.holder.since !== before?.since) {
      const { since: _, ...facts } = feed.holder;
      this.#log.warn(
        { event: 'feed_held', tenant, ...facts },
        'a transaction holds back the changes of a tenant',
      );
    }
  }
}
