import type { Logger } from 'pino';
import type { ControlDatabase } from '../../control/database.ts';
import type { Directory } from '../../control/directory.ts';
import { createLeaseLoop } from '../../control/lease-loop.ts';
import type { TenantRecord } from '../../control/records.ts';
import type { Config } from '../../lib/config/config.ts';
import type { Rate } from '../../lib/http/steps/rate-limit/sliding-window.ts';
import { describeError } from '../../lib/log/describe-error.ts';
import { errorFact } from '../../lib/narrow.ts';
import { atMost } from '../../lib/runtime/within.ts';
import { type ComposeServices, composeMail } from './compose-mail.ts';
import { findRecipient } from './find-recipient.ts';
import { describeMailFailure } from './mail-failure.ts';
import { type BegunMail, type LeasedMail, MailQueue } from './mail-queue.ts';
import { type MailTransport, maxConnections } from './mail-transport.ts';

interface MailDispatcherOptions extends ComposeServices {
  readonly control: ControlDatabase;
  readonly directory: Pick<Directory, 'tenant'>;
  readonly transport: MailTransport;
  /** `MAIL_FROM`. The name of the tenant replaces the name in it. */
  readonly mailFrom: Config['mailFrom'];
  /** Maximum mails to one account. */
  readonly rate: Rate;
  readonly log: Logger;
  /** Identifies this process. */
  readonly processId: string;
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
const pollMs = 1_000;
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
export class MailDispatcher {
  readonly counts: MailCounts = { sent: 0, failed: 0, refused: 0 };
  readonly #options: MailDispatcherOptions;
  readonly #queue: MailQueue;
  readonly #loop: ReturnType<typeof createLeaseLoop>;
  readonly #senderAddress: string;
  readonly #running = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  #patientUntil = Number.NEGATIVE_INFINITY;
  #lookedUp: Promise<unknown> = Promise.resolve();

  constructor(options: MailDispatcherOptions) {
    const { control, processId, mailFrom } = options;
    this.#options = options;
    this.#queue = new MailQueue(control, processId);
    this.#senderAddress = /<([^<>]+)>\s*$/.exec(mailFrom)?.[1] ?? mailFrom.trim();
    this.#loop = createLeaseLoop({
      lease: () => this.#lease(),
      renew: this.#queue.leases.renew,
      pollMs,
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
    this.#options.transport.close();
  }

  async #settled(ms: number): Promise<void> {
    await atMost(Promise.allSettled(this.#running), ms);
  }

  async #lease(): Promise<void> {
    const most = performance.now() < this.#patientUntil ? 1 : maxConnections;
    const places = most - this.#running.size;
    // A mail that ends wakes the loop. Without the present key, no link can be made.
    if (places <= 0 || !this.#options.secrets.isReady) return;

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
  async #deliver(mail: LeasedMail): Promise<void> {
    const { control, rate, log } = this.#options;

    if (mail.isExpired && mail.userId === null) return this.#queue.remove(mail);
    if (mail.isExpired) return this.#refuse(mail, 'its link has expired', {});
    if (mail.userId !== null) return this.#serve(mail);

    const found = await this.#inTurn(() => findRecipient(control, mail, rate));
    if (found === 'limited') {
      log.info(
        { event: 'mail_limited', ...fieldsOf(mail) },
        'a mail was not sent: the account has got as many as it may',
      );
    }
    return typeof found === 'string' ? this.#queue.remove(mail) : this.#serve(found);
  }

  /** Tries a mail whose recipient is known. */
  async #serve(mail: LeasedMail): Promise<void> {
    const { directory, log } = this.#options;
    const tenant = await directory.tenant(mail.tenantGuid);
    if (tenant?.status !== 'active') return this.#postpone(mail, 'the tenant is not served');
    if (tenant.isIsolated) {
      log.info(
        { event: 'mail_withheld', ...fieldsOf(mail) },
        'a mail was not sent, because the tenant is isolated',
      );
      return this.#queue.refuse(mail, 'the tenant is isolated', mail.mayHaveArrived);
    }

    const begun = await this.#queue.begin(mail);
    return begun ? this.#send(mail, begun, tenant) : this.#queue.endReplaced(mail);
  }

  /**
   * Looks one recipient up at a time: a look-up waits for changes of the user, and holds a
   * connection meanwhile.
   */
  #inTurn<Result>(lookUp: () => Promise<Result>): Promise<Result> {
    const result = this.#lookedUp.then(lookUp);
    this.#lookedUp = result.catch(() => {});
    return result;
  }

  async #send(mail: LeasedMail, begun: BegunMail, tenant: TenantRecord): Promise<void> {
    const { transport } = this.#options;
    const stopping = this.#stopping.signal;
    const from = { name: tenant.name, address: this.#senderAddress };
    let isHandedOver = false;

    try {
      const message = { ...composeMail(this.#options, tenant, mail, begun), from };
      await transport.send(message, () => (isHandedOver = true), stopping);
    } catch (error) {
      // The reply of a mail server is certain. Without one, it may have accepted all of the
      // text.
      const hasReply = errorFact(error, 'responseCode') !== undefined;
      const mayHaveArrived = mail.mayHaveArrived || (isHandedOver && !hasReply);
      if (stopping.aborted) return this.#queue.giveBack(mail, mayHaveArrived);
      return this.#fail({ ...mail, mayHaveArrived }, begun, error);
    }

    this.counts.sent++;
    await this.#queue.accept(mail);
  }

  async #fail(mail: LeasedMail, { attempt, email }: BegunMail, error: unknown): Promise<void> {
    const { log } = this.#options;
    const { reason, isFinal, isOverloaded, answer } = describeMailFailure(error, email);
    const wait = mailRetryDelaysMs[attempt - 1];
    this.counts.failed++;
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

  async #refuse(mail: LeasedMail, reason: string, answer: object): Promise<void> {
    this.counts.refused++;
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
  async #afterDefect(mail: LeasedMail, error: unknown): Promise<void> {
    this.#options.log.error(
      { event: 'background_failed', task: 'mail', ...fieldsOf(mail), err: describeError(error) },
      'a background task failed',
    );
    await this.#postpone(mail, 'the service could not send it').catch(() => {});
  }

  async #postpone(mail: LeasedMail, reason: string): Promise<void> {
    await this.#queue.postpone(mail, {
      reason,
      delayMs: minuteMs,
      mayHaveArrived: mail.mayHaveArrived,
    });
  }
}

function fieldsOf({ tenantGuid, kind, traceId }: LeasedMail): object {
  return { tenant: tenantGuid, kind, ...(traceId !== null && { traceId }) };
}
