import type { ControlDatabase } from '../../control/database.ts';
import type { LinkKind } from './mail-link.ts';
import { type WaitingMail, WaitingMails } from './waiting-mails.ts';

/** The kinds of mail. */
export type MailKind = LinkKind | 'account_notice' | 'webhook_disabled';

/** Further facts of a mail, as `mail_deliveries.about`. */
export interface MailAbout {
  /** The network of the client that registered an address. */
  readonly network?: string;
  /** The mail that somebody asked for, where another mail helps the address on. */
  readonly asked?: 'reset' | 'registration';
  /** The reason why the mail that was asked for would not help. */
  readonly because?: 'unconfirmed' | 'expired' | 'disabled' | 'provider';
  /** The names of the providers at which the person signs in. */
  readonly providers?: readonly string[];
  /** The host of a webhook. */
  readonly host?: string;
  readonly reason?: 'gone' | 'failing' | 'rights';
}

/** A delivery that this process may try. */
export interface LeasedMail extends WaitingMail {
  readonly kind: MailKind;
  readonly about: MailAbout;
  /** The address that it was asked for; null: the user is known. */
  readonly address: string | null;
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
const dropReplacedText = `
  delete from mail_deliveries m
   where id = $1 and holder = $2 and ${isReplaced} and tried_at is null`;
const settleReplacedText = `
  update mail_deliveries m
     set state = 'refused', reason = 'a later mail is in its place', settled_at = now(), holder = null,
         leased_until = now()
   where id = $1 and holder = $2 and state = 'waiting' and ${isReplaced}`;

/** The mails that users ask for or are invited by, in `mail_deliveries`. */
export class MailQueue extends WaitingMails<LeasedMail> {
  /** @param holder identifies this process */
  constructor(control: ControlDatabase, holder: string) {
    super(control, holder, {
      name: 'mail_deliveries',
      prefix: 'mails',
      isKnown: 'true',
      columns: 'about, address',
    });
  }

  /**
   * Begins an attempt.
   * @returns undefined when the mail was withdrawn or replaced, or the lease is lost
   */
  async begin({ id }: LeasedMail): Promise<BegunMail | undefined> {
    const [begun] = await this.query<BegunMail>('begin', beginText, [id, this.holder]);
    return begun;
  }

  /**
   * Ends the attempts of a mail that a later one has replaced; the mail stays if it may have
   * arrived. Does nothing if the lease is lost: the mail is then tried again.
   */
  async endReplaced({ id }: LeasedMail): Promise<void> {
    this.leases.forget(id);
    await this.query('drop_replaced', dropReplacedText, [id, this.holder]);
    await this.query('settle_replaced', settleReplacedText, [id, this.holder]);
  }
}
