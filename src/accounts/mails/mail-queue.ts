import { type ControlDatabase, queryControl } from '../../control/database.ts';
import { createLeases, isLeased, type Leases, leaseTime } from '../../control/leases.ts';
import type { LinkKind } from './mail-link.ts';

/** The kinds of mail. */
export type MailKind = LinkKind | 'account_notice' | 'webhook_disabled';

/** Further facts of a mail, as `mail_deliveries.about`. */
export interface MailAbout {
  /** The network of the client that registered an address. */
  readonly network?: string;
  /** The mail that somebody asked for, where another mail helps the address on. */
  readonly asked?: 'reset' | 'registration';
  /** The reason why the mail that was asked for would not help. */
  readonly because?: 'unconfirmed' | 'expired' | 'disabled';
  /** The host of a webhook. */
  readonly host?: string;
  readonly reason?: 'gone' | 'failing' | 'rights';
}

/** A delivery that this process may try. */
export interface LeasedMail {
  readonly id: number;
  readonly tenantId: number;
  readonly tenantGuid: string;
  readonly kind: MailKind;
  readonly about: MailAbout;
  /** The user of the address; null: not looked up yet. */
  readonly userId: number | null;
  readonly address: string | null;
  readonly traceId: string | null;
  readonly isExpired: boolean;
  /** True if an earlier attempt may have arrived. */
  readonly mayHaveArrived: boolean;
}

/** The facts that an attempt needs. */
export interface BegunMail {
  readonly link: string;
  /** Number of this attempt, from 1. */
  readonly attempt: number;
  readonly email: string;
  readonly userGuid: string;
  /** The time of the request for the mail, in ms since 1970. */
  readonly createdAt: number;
  /** The first name in a registration. */
  readonly firstName: string | null;
  readonly lastName: string | null;
}

/** An attempt that was not accepted. */
export interface FailedAttempt {
  readonly reason: string;
  readonly mayHaveArrived: boolean;
  readonly delayMs: number;
}

/** SQL: whether a mail may be tried now, unless its tenant is not served. */
const isDue = `m.state = 'waiting' and m.next_attempt_at <= now() and not ${isLeased('m')}`;
/**
 * SQL: of the tenants after another one, the first that has a mail that `isDue`; null: none
 * has.
 */
const tenantAfter = (other: string): string =>
  `(select m.tenant_id from mail_deliveries m where ${isDue} and m.tenant_id > ${other} order by m.tenant_id limit 1)`;
/**
 * The number of mails of a tenant that one lease chooses from. Some of them are skipped, because
 * other processes lease them at the same moment.
 */
const maxCandidates = 20;
/**
 * Leases one mail of each tenant, beginning after the tenant $3, before it leases a second mail
 * of any tenant: the queue of one tenant, however long, does not delay another one. `turn` is
 * the number of active tenants before.
 */
const leaseText = `
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
          from mail_deliveries m where ${isDue} and m.tenant_id = turns.tenant_id
         order by m.next_attempt_at, m.id limit ${maxCandidates}) waiting),
  next as (
    select m.id, c.guid from candidates c join mail_deliveries m on m.id = c.id
     where m.state = 'waiting' and not ${isLeased('m')}
     order by c.place, c.turn limit $2 for update of m skip locked)
  update mail_deliveries m set holder = $1, leased_until = now() + ${leaseTime}
    from next where m.id = next.id
  returning m.id::float8 as id, tenant_id::float8 as "tenantId", next.guid as "tenantGuid", kind, about,
            user_id::float8 as "userId", address, trace_id as "traceId", expires_at <= now() as "isExpired",
            tried_at is not null as "mayHaveArrived"`;
/**
 * SQL: true if a later delivery to the same user, of the same kind and about the same thing,
 * replaces this one. A replaced delivery that may have arrived stays, for the limit of mails,
 * and is not tried again.
 */
const isReplaced = `
  exists (select from mail_deliveries later
           where later.user_id = m.user_id and later.kind = m.kind and later.about = m.about and later.id > m.id)`;
const beginText = `
  with begun as (
    update mail_deliveries m set tried_at = coalesce(tried_at, now()), attempts = attempts + 1
     where m.id = $1 and holder = $2 and leased_until > now() and state = 'waiting' and not ${isReplaced}
    returning id, link, user_id, attempts, created_at)
  select b.link, b.attempts as attempt, u.email, u.guid as "userGuid",
         (extract(epoch from b.created_at) * 1000)::float8 as "createdAt",
         r.first_name as "firstName", r.last_name as "lastName"
    from begun b join users u on u.id = b.user_id left join registrations r on r.delivery_id = b.id`;
const dropText = `delete from mail_deliveries m where id = $1 and holder = $2`;
const free = 'holder = null, leased_until = now()';
const dropReplacedText = `${dropText} and ${isReplaced} and tried_at is null`;
const settleReplacedText = `
  update mail_deliveries m
     set state = 'refused', reason = 'a later mail is in its place', settled_at = now(), ${free}
   where id = $1 and holder = $2 and state = 'waiting' and ${isReplaced}`;
const settleText = `
  update mail_deliveries
     set state = $3, reason = $4, settled_at = now(), ${free},
         tried_at = case when $5::boolean then tried_at end
   where id = $1 and holder = $2 and state = 'waiting'`;
const postponeText = `
  update mail_deliveries
     set next_attempt_at = now() + $4::float8 * interval '1 ms', reason = $3, ${free},
         tried_at = case when $5::boolean then tried_at end
   where id = $1 and holder = $2 and state = 'waiting'`;
const giveBackText = `
  update mail_deliveries
     set attempts = greatest(attempts - 1, 0), ${free}, tried_at = case when $3::boolean then tried_at end
   where id = $1 and holder = $2 and state = 'waiting'`;

/**
 * The mails that wait, in the control database. A process holds a lease for each mail that it
 * tries, so that one process at a time sends it. After the end of a process, another one tries
 * its mails within ten seconds.
 */
export class MailQueue {
  readonly #control: ControlDatabase;
  readonly #holder: string;
  /** The leases of this process. */
  readonly leases: Leases;
  /** The tenant that had its turn last, by its id; 0: the turns begin. */
  #lastTenantId = 0;

  /** @param holder identifies this process */
  constructor(control: ControlDatabase, holder: string) {
    this.#control = control;
    this.#holder = holder;
    this.leases = createLeases(control, 'mail_deliveries', holder);
  }

  /**
   * Leases mails of active tenants that are due: of each tenant in its turn, and of one tenant
   * those that have waited longest.
   */
  async lease(limit: number): Promise<LeasedMail[]> {
    const leased = await this.#leaseAfter(this.#lastTenantId, limit);
    if (leased.length === limit || this.#lastTenantId === 0) return leased;

    this.#lastTenantId = 0; // the turns begin again
    return [...leased, ...(await this.#leaseAfter(0, limit - leased.length))];
  }

  /** @param tenantId the tenants with greater ids have their turns */
  async #leaseAfter(tenantId: number, limit: number): Promise<LeasedMail[]> {
    const sentAt = performance.now();
    const leased = await this.#query<LeasedMail>('lease', leaseText, [
      this.#holder,
      limit,
      tenantId,
    ]);

    for (const mail of leased) {
      this.leases.hold(mail.id, sentAt);
      this.#lastTenantId = Math.max(this.#lastTenantId, mail.tenantId);
    }
    return leased;
  }

  /**
   * Begins an attempt.
   * @returns undefined when the mail was withdrawn or replaced, or the lease is lost
   */
  async begin({ id }: LeasedMail): Promise<BegunMail | undefined> {
    const [begun] = await this.#query<BegunMail>('begin', beginText, [id, this.#holder]);
    return begun;
  }

  /** Removes a mail that nobody is to get. */
  async remove({ id }: LeasedMail): Promise<void> {
    this.leases.forget(id);
    await this.#query('drop', dropText, [id, this.#holder]);
  }

  /**
   * Ends the attempts of a mail that a later one has replaced; the mail stays if it may have
   * arrived. Does nothing if the lease is lost: the mail is then tried again.
   */
  async endReplaced({ id }: LeasedMail): Promise<void> {
    this.leases.forget(id);
    await this.#query('drop_replaced', dropReplacedText, [id, this.#holder]);
    await this.#query('settle_replaced', settleReplacedText, [id, this.#holder]);
  }

  /** Ends the attempts: the mail server has accepted the mail. */
  async accept({ id }: LeasedMail): Promise<void> {
    await this.#settle(id, 'sent', null, true);
  }

  /** Ends the attempts: the mail is not sent. */
  async refuse({ id }: LeasedMail, reason: string, mayHaveArrived: boolean): Promise<void> {
    await this.#settle(id, 'refused', reason, mayHaveArrived);
  }

  /** Gives a mail back, which is tried again. */
  async postpone(
    { id }: LeasedMail,
    { reason, delayMs, mayHaveArrived }: FailedAttempt,
  ): Promise<void> {
    this.leases.forget(id);
    await this.#query('postpone', postponeText, [
      id,
      this.#holder,
      reason,
      delayMs,
      mayHaveArrived,
    ]);
  }

  /**
   * Gives a mail back whose attempt this process has cut off: another process may try it at
   * once.
   */
  async giveBack({ id }: LeasedMail, mayHaveArrived: boolean): Promise<void> {
    this.leases.forget(id);
    await this.#query('give_back', giveBackText, [id, this.#holder, mayHaveArrived]);
  }

  async #settle(
    id: number,
    state: 'sent' | 'refused',
    reason: string | null,
    mayHaveArrived: boolean,
  ): Promise<void> {
    this.leases.forget(id);
    await this.#query('settle', settleText, [id, this.#holder, state, reason, mayHaveArrived]);
  }

  #query<Row extends object>(name: string, text: string, values: unknown[]): Promise<Row[]> {
    return queryControl<Row>(this.#control, `mails_${name}`, text, values);
  }
}
