import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Logger } from 'pino';
import { describeError } from '../lib/log/describe-error.ts';
import { lockSpaces } from '../lib/postgres/advisory-locks.ts';
import { isNotifyFull } from '../lib/postgres/database-error.ts';
import { atMost, within } from '../lib/runtime/within.ts';
import { connectFirst } from '../lib/seams/first-in-queue.ts';
import { beatTopic, changeChannel } from './change-topics.ts';
import { ProcessClock } from './process-clock.ts';
import type { ProcessIdentity } from './process-identity.ts';
import { isRunning, maxBeatAgeSeconds } from './running-process.ts';
import type { SecretBox } from './secret-box.ts';

const everyMs = 1_000;
const retryMs = 250;
/** Maximum wait for a connection of the pool. */
const maxWaitMs = 500;
/** Maximum time of the statement. */
const maxRunMs = 1_000;
/**
 * The age of its last confirmed beat at which a process stops to open connections to tenants.
 * The other processes stop to count it two seconds later (`maxBeatAgeSeconds`).
 */
const confirmedForMs = 3_000;
/**
 * The number of beats of this process after which every other one has counted it, and has
 * closed the connections that are now above its smaller share.
 */
const beatsToSettle = 2;
/** Maximum wait of a start: by then, the rows of dead processes do not count any more. */
const maxJoinMs = (maxBeatAgeSeconds + 1) * 1_000;
const joinRetryMs = 250;
/** Maximum delay of a stop by a control database that does not respond. */
const maxLeaveMs = 2_000;

/** The answer of the control database to a beat. */
export interface Fleet {
  /** Running processes of the service, this one included if it is one. */
  readonly services: number;
  /** The smallest `CONNECTION_BUDGET` of the running processes, while their settings differ. */
  readonly budget: number;
}

/** The other running processes of the service. */
interface Others {
  readonly others: number;
  readonly leastBudget: number | null;
}

interface BeatRow extends Others {
  /** The fingerprint of the present master key; null before the first use of a key. */
  readonly keyFingerprint: string | null;
  /** The time of the control database, in ms since 1970. */
  readonly clockMs: number;
}

interface BeatOptions {
  /** The pool of the control database. */
  pool: pg.Pool;
  process: ProcessIdentity;
  /** `CONNECTION_BUDGET` */
  budget: number;
  /** The keys of the process: each confirmed beat names the present one. */
  secrets: Pick<SecretBox, 'setPresent'>;
  log: Pick<Logger, 'info' | 'warn'>;
  /** The clock of the process, which each confirmed beat compares with that of the database. */
  clock?: ProcessClock;
}

/**
 * Writes a beat, and returns the facts about the fleet. It waits neither for the disk nor for a
 * standby: a lost beat is followed by another one. It does not see the row that it adds or
 * changes itself.
 */
const beatStatement = `
  with beat as (
    insert into processes (id, kind, host, pid, build, tenant_head, control_head, connection_budget, shares_limits,
                           clock_ahead_ms, wide_proxies)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $11, $12)
        on conflict (id) do update set seen_at = clock_timestamp(), clock_ahead_ms = excluded.clock_ahead_ms
  )
  select set_config('synchronous_commit', 'off', true), pg_notify('${changeChannel}', $10),
         count(*)::int as others, min(connection_budget) as "leastBudget",
         (select key_fingerprint from installation) as "keyFingerprint",
         (extract(epoch from clock_timestamp()) * 1000)::float8 as "clockMs"
    from processes p
   where id <> $1 and kind = 'service' and ${isRunning('p')}`;

const forgetStatement = `
  delete from processes
   where seen_at not between clock_timestamp() - interval '1 minute' and clock_timestamp() + interval '1 minute'`;

const othersStatement = `
  select count(*)::int as others, min(connection_budget) as "leastBudget"
    from processes p
   where id <> $1 and kind = 'service' and ${isRunning('p')}`;

/**
 * Lets the server empty its queue of notifications as far as every session has read it.
 * Otherwise a full queue stays full when the session that held it has ended: PostgreSQL empties
 * it when a notification is added, which it refuses.
 */
const emptyStatement = 'select pg_notification_queue_usage()';

/**
 * The beat of a process: its row in `processes`, written each second through the pool of the
 * control database, and notified on the change feed. It shows that the process runs, and
 * returns the number of the others.
 */
export class Beat {
  readonly #options: BeatOptions;
  readonly clock: ProcessClock;
  readonly #listeners: (() => void)[] = [];
  /**
   * The times at which the last beats were sent, by the number of the beat, on the monotonic
   * clock.
   */
  readonly #sentAt = new Map<number, number>();
  #fleet: Fleet;
  #number = 0;
  #confirmedAt = Number.NEGATIVE_INFINITY;
  /** Confirmed beats since the start, or since the last time without a confirmed one. */
  #confirmed = 0;
  #isLost = false;
  #isStopped = false;
  #timer: NodeJS.Timeout | undefined;
  #lossTimer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  /** Settles when the last attempt to connect has ended. */
  #connecting: Promise<void> = Promise.resolve();

  constructor(options: BeatOptions) {
    this.#options = options;
    this.clock = options.clock ?? new ProcessClock();
    this.#fleet = { services: 1, budget: options.budget };
  }

  /** The process, by whose id others know its beats. */
  get process(): ProcessIdentity {
    return this.#options.process;
  }

  /** The answer to the last confirmed beat. */
  get fleet(): Fleet {
    return this.#fleet;
  }

  /**
   * True while the last confirmed beat is so recent that the other processes count this one.
   */
  get isConfirmed(): boolean {
    return performance.now() - this.#confirmedAt < confirmedForMs;
  }

  /** True once the other processes have made room for this one. */
  get isSettled(): boolean {
    return this.#confirmed >= beatsToSettle;
  }

  /**
   * Returns the time at which a beat of this process was sent, by `performance.now()`;
   * undefined for another process, and for a beat that is not one of the last few.
   * @param key of the notification: the id of the process and the number of the beat
   *   (`<id>/<number>`)
   */
  sentAt(key: string): number | undefined {
    const [id, number] = key.split('/');
    return id === this.process.id ? this.#sentAt.get(Number(number)) : undefined;
  }

  /** Calls back after each confirmed beat, and when there was none for three seconds. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /**
   * Begins to beat.
   * @param hasRoom returns whether this many processes of the service may run with the smallest
   *   of their budgets. One process at a time is counted, so of several that start at once the
   *   last ones are refused
   * @returns false when there was no room for six seconds, in which the rows of dead processes
   *   expire
   * @throws when the control database cannot be used, also when the queue of notifications of
   *   its server was full for these six seconds; without `hasRoom` at once
   */
  async join(hasRoom?: (fleet: Fleet) => boolean): Promise<boolean> {
    const deadline = performance.now() + maxJoinMs;

    const isOver = () => performance.now() > deadline;
    const join = () =>
      this.#tryJoin(hasRoom).catch(error => {
        if (!isNotifyFull(error) || !hasRoom || isOver()) throw error;
        return false;
      });

    while (!(await join())) {
      if (isOver()) return false;
      await sleep(joinRetryMs);
    }

    this.#schedule(everyMs);
    return true;
  }

  /** Resolves when the other processes have made room for this one, or after `maxMs`. */
  async settle(maxMs: number): Promise<void> {
    if (this.isSettled) return;

    const settled = Promise.withResolvers<void>();
    this.onChange(() => {
      if (this.isSettled) settled.resolve();
    });
    await atMost(settled.promise, maxMs);
  }

  /**
   * Ends the beat, and removes the row of this process. Call it when the process has no other
   * connection any more. Never rejects.
   */
  async leave(): Promise<void> {
    const { process } = this.#options;
    this.#isStopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#lossTimer);

    const remove = async (): Promise<void> => {
      await this.#running;
      await this.#options.pool.query('delete from processes where id = $1', [process.id]);
    };
    await atMost(
      remove().catch(() => {}),
      maxLeaveMs,
    );
  }

  #tryJoin(hasRoom?: (fleet: Fleet) => boolean): Promise<boolean> {
    return this.#whileFull(() => this.#joinOnce(hasRoom));
  }

  async #joinOnce(hasRoom?: (fleet: Fleet) => boolean): Promise<boolean> {
    const client = await this.#options.pool.connect();
    try {
      await client.query('begin');
      if (hasRoom) {
        await client.query('select pg_advisory_xact_lock($1, 0)', [lockSpaces.processes]);
      }
      await client.query(forgetStatement);
      const { rows: others } = await client.query<Others>(othersStatement, [this.process.id]);
      const joins = hasRoom?.(this.#fleetOf(others[0]!)) ?? true;

      const sentAt = performance.now();
      const { rows } = joins
        ? await client.query<BeatRow>(beatStatement, this.#values())
        : { rows: [] };
      await client.query('commit');
      client.release();

      if (rows[0]) this.#confirm(sentAt, rows[0]);
      return joins;
    } catch (error) {
      client.release(true);
      throw error;
    }
  }

  #schedule(afterMs: number): void {
    this.#timer = setTimeout(() => {
      this.#running = this.#run();
    }, afterMs).unref();
  }

  async #run(): Promise<void> {
    const startedAt = performance.now();
    const isConfirmed = await this.#send();
    if (this.#isStopped) return;

    const nextMs = startedAt + everyMs - performance.now();
    this.#schedule(isConfirmed ? Math.max(0, nextMs) : retryMs);
  }

  /**
   * Sends one beat. Never rejects.
   * @returns whether it was confirmed
   */
  async #send(): Promise<boolean> {
    try {
      await this.#whileFull(async () => {
        const client = await this.#connect();
        const sentAt = performance.now();
        const row = await this.#query(client);
        this.#confirm(sentAt, row);
      });
      return true;
    } catch (error) {
      this.#reportFailure(error);
      return false;
    }
  }

  /** Does something that notifies, and once more when the queue was full and may be emptied. */
  async #whileFull<T>(notify: () => Promise<T>): Promise<T> {
    try {
      return await notify();
    } catch (error) {
      if (!isNotifyFull(error)) throw error;
    }

    const client = await this.#connect();
    try {
      const query = { text: emptyStatement, query_timeout: maxRunMs };
      await client.query(query);
      client.release();
    } catch (error) {
      client.release(true);
      throw error;
    }

    return notify();
  }

  /**
   * Waits for one connection at a time. An attempt that takes too long goes on, and another one
   * beside it would open a second connection to a server that does not respond.
   */
  async #connect(): Promise<pg.PoolClient> {
    await within(this.#connecting, maxWaitMs);
    const connecting = connectFirst(this.#options.pool);
    this.#connecting = connecting.then(
      () => {},
      () => {},
    );

    try {
      return await within(connecting, maxWaitMs);
    } catch (error) {
      connecting.then(
        client => client.release(),
        () => {},
      );
      throw error;
    }
  }

  /**
   * Runs the statement, and releases the connection, which is closed if the statement failed.
   */
  async #query(client: pg.PoolClient): Promise<BeatRow> {
    try {
      const query = {
        name: 'beat',
        text: beatStatement,
        values: this.#values(),
        query_timeout: maxRunMs,
      };
      const { rows } = await client.query<BeatRow>(query);
      client.release();
      return rows[0]!;
    } catch (error) {
      client.release(true);
      throw error;
    }
  }

  /** The values of the next beat, which is sent now. */
  #values(): unknown[] {
    const { process, budget } = this.#options;
    const { id, kind, host, pid, build, heads, sharesLimits, wideProxies } = process;
    const now = performance.now();

    for (const [number, sentAt] of this.#sentAt) {
      if (sentAt < now - confirmedForMs) this.#sentAt.delete(number);
    }
    this.#sentAt.set(++this.#number, now);

    return [
      id,
      kind,
      host,
      pid,
      build,
      heads?.tenant,
      heads?.control,
      budget,
      sharesLimits,
      `${beatTopic}:${id}/${this.#number}`,
      this.clock.aheadMs,
      wideProxies,
    ];
  }

  #confirm(sentAt: number, row: BeatRow): void {
    const wasConfirmed = this.isConfirmed;
    const isFirst = this.#confirmedAt === Number.NEGATIVE_INFINITY;
    this.#fleet = this.#fleetOf(row);
    this.#options.secrets.setPresent(row.keyFingerprint);
    this.clock.compare(row.clockMs, performance.now() - sentAt);
    this.#confirmedAt = sentAt;

    const isAlone = isFirst && row.others === 0;
    if (isAlone) this.#confirmed = beatsToSettle;
    else this.#confirmed = wasConfirmed ? this.#confirmed + 1 : 1;

    if (this.#isLost) {
      this.#options.log.info(
        { event: 'beat_confirmed' },
        'the control database confirms beats again',
      );
    }
    this.#isLost = false;
    clearTimeout(this.#lossTimer);
    this.#lossTimer = setTimeout(
      () => this.#notify(),
      sentAt + confirmedForMs - performance.now(),
    ).unref();
    this.#notify();
  }

  #reportFailure(error: unknown): void {
    if (this.#isStopped || this.#isLost || this.isConfirmed) return;
    this.#isLost = true;
    this.#options.log.warn(
      { event: 'beat_lost', err: describeError(error) },
      'the control database has confirmed no beat for 3 s: this process opens no connection to a tenant until it does',
    );
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  #fleetOf({ others, leastBudget }: Others): Fleet {
    const { process, budget } = this.#options;
    if (process.kind === 'command') return { services: others, budget: leastBudget ?? budget };
    return { services: others + 1, budget: Math.min(budget, leastBudget ?? budget) };
  }
}
