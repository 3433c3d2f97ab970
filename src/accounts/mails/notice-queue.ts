import type { ControlDatabase, QueryControl } from '../../control/database.ts';
import { type NoticeEvent, type NoticeMail, noticeKinds } from './notice-kinds.ts';
import { type WaitingMail, WaitingMails } from './waiting-mails.ts';

/** A notice that this process may send, or an event of which it informs administrators. */
export type LeasedNotice = WaitingNotice & (NoticeEvent | NoticeMail);

interface WaitingNotice extends WaitingMail {
  /** When it was written, in ISO 8601. */
  readonly createdAt: string;
  /** The time since then, in ms. */
  readonly ageMs: number;
  /** The notices of its kind to its recipient that were written in the day before it. */
  readonly earlier: number;
}

/** The facts that an attempt needs. */
interface BegunNotice {
  /** Number of this attempt, from 1. */
  readonly attempt: number;
  readonly email: string;
}

const columns = `
  details, m.user_id is null and m.address is null as "isEvent",
  to_json(m.created_at) #>> '{}' as "createdAt",
  (extract(epoch from now() - m.created_at) * 1000)::float8 as "ageMs",
  (select count(*)::int from account_notices e
    where e.kind = m.kind and e.id < m.id and e.created_at > m.created_at - interval '1 day'
      and (e.user_id = m.user_id or e.user_id is null and m.user_id is null and e.address = m.address)) as earlier`;
const beginText = `
  with begun as (
    update account_notices m set tried_at = coalesce(tried_at, now()), attempts = attempts + 1
     where m.id = $1 and holder = $2 and leased_until > now() and state = 'waiting'
    returning user_id, address, attempts)
  select b.attempts as attempt, coalesce(b.address, u.email) as email
    from begun b left join users u on u.id = b.user_id`;
const endEvent = `
  update account_notices
     set state = 'sent', settled_at = now(), holder = null, leased_until = now()
   where id = $1 and holder = $2 and state = 'waiting'
  returning id`;

/** The notices of `account_notices` whose kinds this build knows. */
export class NoticeQueue extends WaitingMails<LeasedNotice> {
  /** @param holder identifies this process */
  constructor(control: ControlDatabase, holder: string) {
    super(control, holder, {
      name: 'account_notices',
      prefix: 'notices',
      isKnown: `m.kind in (${noticeKinds.map(kind => `'${kind}'`).join(', ')})`,
      columns,
    });
  }

  /**
   * Begins an attempt.
   * @returns undefined when the lease is lost
   */
  async begin({ id }: LeasedNotice): Promise<BegunNotice | undefined> {
    const [begun] = await this.query<BegunNotice>('begin', beginText, [id, this.holder]);
    return begun;
  }

  /**
   * Ends an event, in the transaction that adds its notices. The row stays, so that its occasion
   * is not added again.
   * @returns false when the lease is lost
   */
  async endEvent(query: QueryControl, { id }: LeasedNotice): Promise<boolean> {
    this.leases.forget(id);
    const ended = await query('notices_end_event', endEvent, [id, this.holder]);
    return ended.length > 0;
  }
}
