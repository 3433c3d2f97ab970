import { type ControlDatabase, queryControl } from '../../control/database.ts';
import { createLeases, isLeased, type Leases, leaseTime } from '../../control/leases.ts';

/** A mail that this process may try. */
export interface WaitingMail {
  readonly id: number;
  readonly tenantId: number;
  readonly tenantGuid: string;
  readonly kind: string;
  /** The user who gets it; null: not known yet, or nobody with an account. */
  readonly userId: number | null;
  /** The request that the mail follows, as its response and the logs name it. */
  readonly traceId: string | null;
  readonly isExpired: boolean;
  /** True if an earlier attempt may have arrived. */
  readonly mayHaveArrived: boolean;
}

/** An attempt that was not accepted. */
interface FailedAttempt {
  readonly reason: string;
  readonly mayHaveArrived: boolean;
  readonly delayMs: number;
}

/** The table of mails, and what its rows have beside the columns that all such tables have. */
interface MailTable {
  readonly name: 'mail_deliveries' | 'account_notices';
  /** The names of the statements begin with it. */
  readonly prefix: string;
  /** SQL condition for the rows `m` that this build can send. */
  readonly isKnown: string;
  /** SQL: the further columns of a leased row `m`. */
  readonly columns: string;
}

/**
 * The number of mails of a tenant that one lease chooses from. Some of them are skipped, because
 * other processes lease them at the same moment.
 */
const maxCandidates = 20;
const free = 'holder = null, leased_until = now()';

/**
 * Mails that wait in a table of the control database. A process holds a lease for each mail that
 * it tries, so that one process at a time sends it. After the end of a process, another one
 * tries its mails within ten seconds.
 */
export class WaitingMails<Mail extends WaitingMail> {
  /** The leases of this process. */
  readonly leases: Leases;
  protected readonly control: ControlDatabase;
  protected readonly holder: string;
  readonly #prefix: string;
  readonly #texts: ReturnType<typeof textsOf>;
  /** The tenant that had its turn last, by its id; 0: the turns begin. */
  #lastTenantId = 0;

  /** @param holder identifies this process */
  constructor(control: ControlDatabase, holder: string, table: MailTable) {
    this.control = control;
    this.holder = holder;
    this.leases = createLeases(control, table.name, holder);
    this.#prefix = table.prefix;
    this.#texts = textsOf(table);
  }

  /**
   * Leases mails of active tenants that are due: of each tenant in its turn, and of one tenant
   * those that have waited longest.
   */
  async lease(limit: number): Promise<Mail[]> {
    const leased = await this.#leaseAfter(this.#lastTenantId, limit);
    if (leased.length === limit || this.#lastTenantId === 0) return leased;

    this.#lastTenantId = 0; // the turns begin again
    return [...leased, ...(await this.#leaseAfter(0, limit - leased.length))];
  }

  /** @param tenantId the tenants with greater ids have their turns */
  async #leaseAfter(tenantId: number, limit: number): Promise<Mail[]> {
    const sentAt = performance.now();
    const values = [this.holder, limit, tenantId];
    const leased = await this.query<Mail>('lease', this.#texts.lease, values);

    for (const mail of leased) {
      this.leases.hold(mail.id, sentAt);
      this.#lastTenantId = Math.max(this.#lastTenantId, mail.tenantId);
    }
    return leased;
  }

  /** Removes a mail that nobody is to get. */
  async remove({ id }: Pick<WaitingMail, 'id'>): Promise<void> {
    this.leases.forget(id);
    await this.query('drop', this.#texts.drop, [id, this.holder]);
  }

  /** Ends the attempts: the mail server has accepted the mail. */
  async accept({ id }: Pick<WaitingMail, 'id'>): Promise<void> {
    await this.#settle(id, 'sent', null, true);
  }

  /** Ends the attempts: the mail is not sent. */
  async refuse(
    { id }: Pick<WaitingMail, 'id'>,
    reason: string,
    mayHaveArrived: boolean,
  ): Promise<void> {
    await this.#settle(id, 'refused', reason, mayHaveArrived);
  }

  /** Gives a mail back, which is tried again. */
  async postpone(
    { id }: Pick<WaitingMail, 'id'>,
    { reason, delayMs, mayHaveArrived }: FailedAttempt,
  ): Promise<void> {
    this.leases.forget(id);
    const values = [id, this.holder, reason, delayMs, mayHaveArrived];
    await this.query('postpone', this.#texts.postpone, values);
  }

  /**
   * Gives a mail back whose attempt this process has cut off: another process may try it at
   * once.
   */
  async giveBack({ id }: Pick<WaitingMail, 'id'>, mayHaveArrived: boolean): Promise<void> {
    this.leases.forget(id);
    await this.query('give_back', this.#texts.giveBack, [id, this.holder, mayHaveArrived]);
  }

  async #settle(
    id: number,
    state: 'sent' | 'refused',
    reason: string | null,
    mayHaveArrived: boolean,
  ): Promise<void> {
    this.leases.forget(id);
    const values = [id, this.holder, state, reason, mayHaveArrived];
    await this.query('settle', this.#texts.settle, values);
  }

  protected query<Row extends object>(
    name: string,
    text: string,
    values: unknown[],
  ): Promise<Row[]> {
    return queryControl<Row>(this.control, `${this.#prefix}_${name}`, text, values);
  }
}

/**
 * Returns the statements of a table. The lease takes one mail of each tenant, beginning after
 * the tenant $3, before a second mail of any tenant: the queue of one tenant, however long, does
 * not delay another one. `turn` is the number of active tenants before.
 */
function textsOf({ name: table, isKnown, columns }: MailTable) {
  // whether a mail may be tried now, unless its tenant is not served
  const isDue = `m.state = 'waiting' and m.next_attempt_at <= now() and not ${isLeased('m')} and ${isKnown}`;
  // of the tenants after another one, the first that has a mail that is due; null: none has
  const tenantAfter = (other: string): string =>
    `(select m.tenant_id from ${table} m where ${isDue} and m.tenant_id > ${other} order by m.tenant_id limit 1)`;
  const isHeld = `id = $1 and holder = $2 and state = 'waiting'`;

  return {
    lease: `
      with recursive turns as (
        select ${tenantAfter('$3::bigint')} as tenant_id, 0 as turn
         union all
        select ${tenantAfter('turns.tenant_id')},
               turn + (select count(*) from tenants t where t.id = turns.tenant_id and t.status = 'active')::integer
          from turns where tenant_id is not null and turn < $2),
      candidates as materialized (
        select waiting.id, t.guid, turn, place
          from turns join tenants t on t.id = turns.tenant_id and t.status = 'active' cross join lateral (
            select m.id, row_number() over (order by m.next_attempt_at, m.id) as place
              from ${table} m where ${isDue} and m.tenant_id = turns.tenant_id
             order by m.next_attempt_at, m.id limit ${maxCandidates}) waiting),
      next as (
        select m.id, c.guid from candidates c join ${table} m on m.id = c.id
         where m.state = 'waiting' and not ${isLeased('m')}
         order by c.place, c.turn limit $2 for update of m skip locked)
      update ${table} m set holder = $1, leased_until = now() + ${leaseTime}
        from next where m.id = next.id
      returning m.id::float8 as id, tenant_id::float8 as "tenantId", next.guid as "tenantGuid", kind,
                user_id::float8 as "userId", trace_id as "traceId", expires_at <= now() as "isExpired",
                tried_at is not null as "mayHaveArrived", ${columns}`,
    drop: `delete from ${table} where id = $1 and holder = $2`,
    settle: `
      update ${table}
         set state = $3, reason = $4, settled_at = now(), ${free},
             tried_at = case when $5::boolean then tried_at end
       where ${isHeld}`,
    postpone: `
      update ${table}
         set next_attempt_at = now() + $4::float8 * interval '1 ms', reason = $3, ${free},
             tried_at = case when $5::boolean then tried_at end
       where ${isHeld}`,
    giveBack: `
      update ${table}
         set attempts = greatest(attempts - 1, 0), ${free}, tried_at = case when $3::boolean then tried_at end
       where ${isHeld}`,
  };
}
