import type { ControlDatabase } from '../../control/database.ts';
import type { TenantRecord } from '../../control/records.ts';
import type { Rate } from '../../lib/http/steps/rate-limit/sliding-window.ts';
import { type ComposeServices, composeMail } from './compose-mail.ts';
import { findRecipient } from './find-recipient.ts';
import type { BegunAttempt, MailSource, NotSent } from './mail-dispatcher.ts';
import { type LeasedMail, MailQueue } from './mail-queue.ts';
import { maxConnections } from './mail-transport.ts';

interface DeliverySourceOptions extends ComposeServices {
  readonly control: ControlDatabase;
  /** Maximum mails to one account. */
  readonly rate: Rate;
  /** Identifies this process. */
  readonly processId: string;
}

/** The mails of `mail_deliveries`: invitations, registrations, new passwords. */
export class DeliverySource implements MailSource<LeasedMail> {
  readonly queue: MailQueue;
  readonly maxRunning = maxConnections;
  readonly pollMs = 1_000;
  readonly expiredReason = 'its link has expired';
  readonly #options: DeliverySourceOptions;
  #lookedUp: Promise<unknown> = Promise.resolve();

  constructor(options: DeliverySourceOptions) {
    this.#options = options;
    this.queue = new MailQueue(options.control, options.processId);
  }

  /** Without the present key, no link can be made. */
  isReady(): boolean {
    return this.#options.secrets.isReady;
  }

  async findRecipient(mail: LeasedMail): Promise<LeasedMail | NotSent> {
    const { control, rate } = this.#options;
    return mail.userId === null ? this.#inTurn(() => findRecipient(control, mail, rate)) : mail;
  }

  async begin(mail: LeasedMail, tenant: TenantRecord): Promise<BegunAttempt | undefined> {
    const begun = await this.queue.begin(mail);
    if (!begun) {
      await this.queue.endReplaced(mail);
      return undefined;
    }

    const { attempt, email } = begun;
    return {
      attempt,
      email,
      compose: () => composeMail(this.#options, tenant, mail, begun),
    };
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
}
