import type { Logger } from 'pino';
import type { Directory } from '../../control/directory.ts';
import { createLeaseLoop } from '../../control/lease-loop.ts';
import type { TenantRecord } from '../../control/records.ts';
import type { Config } from '../../lib/config/config.ts';
import { describeError } from '../../lib/log/describe-error.ts';
import { errorFact } from '../../lib/narrow.ts';
import { atMost } from '../../lib/runtime/within.ts';
import { describeMailFailure } from './mail-failure.ts';
import type { MailTransport, Message } from './mail-transport.ts';
import type { WaitingMail, WaitingMails } from './waiting-mails.ts';

interface MailDispatcherOptions<Mail extends WaitingMail> {
  readonly source: MailSource<Mail>;
  readonly directory: Pick<Directory, 'tenant'>;
  readonly transport: Pick<MailTransport, 'send'>;
  /** Counts the mails and attempts of this process. */
  readonly counts: MailCounts;
  /** `MAIL_FROM`. The name of the tenant replaces the name in it. */
  readonly mailFrom: Config['mailFrom'];
  readonly log: Logger;
}

/** The mails of one table, and how they come to a recipient and a text. */
export interface MailSource<Mail extends WaitingMail> {
  readonly queue: WaitingMails<Mail>;
  /** Maximum mails of the table that the process tries at the same time. */
  readonly maxRunning: number;
  /** How often the process looks for mails of others, in ms. */
  readonly pollMs: number;
  /** The reason why a mail is not sent after its time. */
  readonly expiredReason: string;
  /** False while no mail can be composed. */
  isReady(): boolean;
  findRecipient(mail: Mail): Promise<Mail | NotSent>;
  /** Begins an attempt. Undefined: there is none, because the mail ends, waits, or is lost. */
  begin(mail: Mail, tenant: TenantRecord): Promise<BegunAttempt | undefined>;
}

/**
 * The reason why a mail is not sent. `unknown`: there is nobody to get it; `limited`: the
 * account has got as many as it may; `replaced`: a later mail is sent in its place.
 */
export type NotSent = 'unknown' | 'limited' | 'replaced';

/** An attempt that has begun. */
export interface BegunAttempt {
  /** Its number, from 1. */
  readonly attempt: number;
  readonly email: string;
  /** Composes the mail: each attempt composes the same one. */
  readonly compose: () => Message;
}

/** Mails and attempts of this process since its start. */
export interface MailCounts {
  /** Mails that the mail server accepted, or that were written to a file. */
  sent: number;
  /** Attempts that were not accepted. */
  failed: number;
  /** Mails that were refused or given up. */
  refused: number;
}

const minuteMs = 60_000;
/** The waits before each retry; after the last one, a mail is given up. */
const mailRetryDelaysMs: readonly number[] = [
  minuteMs,
  5 * minuteMs,
  30 * minuteMs,
  120 * minuteMs,
];
/**
 * Each wait is up to a tenth longer, so that mails that failed together are not tried together.
 */
const jitter = 0.1;
/** After a mail server has asked for patience, it gets one mail at a time. */
const patienceMs = minuteMs;
/**
 * A mail server that works accepts what was begun in this time; a stop does not wait longer.
 */
const stopMs = 1_000;

/**
 * Sends the mails that this process leases: tries each until the mail server accepts or refuses
 * it, or its last retry fails. Isolated tenants, such as copies of others, send none. The log
 * has neither address nor text.
 */
export class MailDispatcher<Mail extends WaitingMail> {
  readonly #options: MailDispatcherOptions<Mail>;
  readonly #source: MailSource<Mail>;
  readonly #queue: WaitingMails<Mail>;
  readonly #loop: ReturnType<typeof createLeaseLoop>;
  readonly #senderAddress: string;
  readonly #running = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  #patientUntil = Number.NEGATIVE_INFINITY;

  constructor(options: MailDispatcherOptions<Mail>) {
    const { source, mailFrom } = options;
    this.#options = options;
    this.#source = source;
    this.#queue = source.queue;
    this.#senderAddress = /<([^<>]+)>\s*$/.exec(mailFrom)?.[1] ?? mailFrom.trim();
    this.#loop = createLeaseLoop({
      lease: () => this.#lease(),
      renew: this.#queue.leases.renew,
      pollMs: source.pollMs,
    });
  }

  /** Begins to send mails, also those that other processes left when they ended. */
  start(): void {
    this.#loop.start();
  }

  /** Looks for mails soon, because there may be one to send. */
  wake(): void {
    this.#loop.wake();
  }

  /**
   * Begins no further mail, and cuts off running attempts after a second: another process sends
   * these mails again.
   */
  async stop(): Promise<void> {
    this.#loop.stop();
    await this.#settled(stopMs);
    this.#stopping.abort();
    await this.#settled(stopMs);
  }

  async #settled(ms: number): Promise<void> {
    await atMost(Promise.allSettled(this.#running), ms);
  }

  async #lease(): Promise<void> {
    const most = performance.now() < this.#patientUntil ? 1 : this.#source.maxRunning;
    const places = most - this.#running.size;
    // A mail that ends wakes the loop.
    if (places <= 0 || !this.#source.isReady()) return;

    for (const mail of await this.#queue.lease(places)) {
      const running = this.#deliver(mail)
        .catch(error => this.#afterDefect(mail, error))
        .finally(() => {
          this.#running.delete(running);
          this.#loop.wake();
        });
      this.#running.add(running);
    }
  }

  /** Tries a mail once. */
  async #deliver(mail: Mail): Promise<void> {
    const { directory, log } = this.#options;
    if (mail.isExpired && mail.userId === null) return this.#queue.remove(mail);
    if (mail.isExpired) return this.#refuse(mail, this.#source.expiredReason, {});

    const found = await this.#source.findRecipient(mail);
    if (found === 'limited') {
      log.info(
        { event: 'mail_limited', ...fieldsOf(mail) },
        'a mail was not sent: the account has got as many as it may',
      );
    }
    if (typeof found === 'string') return this.#queue.remove(mail);

    const tenant = await directory.tenant(mail.tenantGuid);
    if (tenant?.status !== 'active') return this.#postpone(found, 'the tenant is not served');
    if (tenant.isIsolated) {
      log.info(
        { event: 'mail_withheld', ...fieldsOf(found) },
        'a mail was not sent, because the tenant is isolated',
      );
      return this.#queue.refuse(found, 'the tenant is isolated', found.mayHaveArrived);
    }

    const begun = await this.#source.begin(found, tenant);
    return begun && this.#send(found, begun, tenant);
  }

  async #send(mail: Mail, begun: BegunAttempt, tenant: TenantRecord): Promise<void> {
    const { transport } = this.#options;
    const stopping = this.#stopping.signal;
    const from = { name: tenant.name, address: this.#senderAddress };
    let isHandedOver = false;

    try {
      const message = { ...begun.compose(), from };
      await transport.send(message, () => (isHandedOver = true), stopping);
    } catch (error) {
      // The reply of a mail server is certain. Without one, it may have accepted all of the
      // text.
      const hasReply = errorFact(error, 'responseCode') !== undefined;
      const mayHaveArrived = mail.mayHaveArrived || (isHandedOver && !hasReply);
      if (stopping.aborted) return this.#queue.giveBack(mail, mayHaveArrived);
      return this.#fail({ ...mail, mayHaveArrived }, begun, error);
    }

    this.#options.counts.sent++;
    await this.#queue.accept(mail);
  }

  async #fail(mail: Mail, { attempt, email }: BegunAttempt, error: unknown): Promise<void> {
    const { log } = this.#options;
    const { reason, isFinal, isOverloaded, answer } = describeMailFailure(error, email);
    const wait = mailRetryDelaysMs[attempt - 1];
    this.#options.counts.failed++;
    if (isOverloaded) this.#patientUntil = performance.now() + patienceMs;
    if (isFinal || wait === undefined) return this.#refuse(mail, reason, { attempt, ...answer });

    const delayMs = Math.round(wait * (1 + jitter * Math.random()));
    log.warn(
      {
        event: 'mail_failed',
        ...fieldsOf(mail),
        attempt,
        retryInSeconds: Math.round(delayMs / 1_000),
        ...answer,
      },
      'a mail was not accepted, and is tried again',
    );
    await this.#queue.postpone(mail, { reason, delayMs, mayHaveArrived: mail.mayHaveArrived });
  }

  async #refuse(mail: Mail, reason: string, answer: object): Promise<void> {
    this.#options.counts.refused++;
    this.#options.log.error(
      { event: 'mail_refused', ...fieldsOf(mail), reason, ...answer },
      'a mail was not accepted, and is not tried again',
    );
    await this.#queue.refuse(mail, reason, mail.mayHaveArrived);
  }

  /**
   * Postpones a mail after a defect. While the control database is away, the lease ends by
   * itself, and the mail is tried again then.
   */
  async #afterDefect(mail: Mail, error: unknown): Promise<void> {
    this.#options.log.error(
      { event: 'background_failed', task: 'mail', ...fieldsOf(mail), err: describeError(error) },
      'a background task failed',
    );
    await this.#postpone(mail, 'the service could not send it').catch(() => {});
  }

  async #postpone(mail: Mail, reason: string): Promise<void> {
    await this.#queue.postpone(mail, {
      reason,
      delayMs: minuteMs,
      mayHaveArrived: mail.mayHaveArrived,
    });
  }
}

function fieldsOf({ tenantGuid, kind, traceId }: WaitingMail): object {
  return { tenant: tenantGuid, kind, ...(traceId !== null && { traceId }) };
}
