import type { Logger } from 'pino';
import { type ControlDatabase, transactControl } from '../../control/database.ts';
import { isManager } from '../../control/managers.ts';
import type { TenantRecord } from '../../control/records.ts';
import { describeError } from '../../lib/log/describe-error.ts';
import { composeNotice } from './compose-notice.ts';
import type { BegunAttempt, MailSource, NotSent } from './mail-dispatcher.ts';
import {
  type ReadWebhooks,
  readEndedClients,
  readEndingKeys,
  readMadeAccounts,
  readMadeThings,
  readMaker,
} from './notice-facts.ts';
import type { NoticeEvent } from './notice-kinds.ts';
import { type LeasedNotice, NoticeQueue } from './notice-queue.ts';

interface NoticeSourceOptions {
  readonly control: ControlDatabase;
  readonly publicUrl: string;
  readonly readWebhooks: ReadWebhooks;
  readonly log: Logger;
  /** Identifies this process. */
  readonly processId: string;
}

/** Maximum notices of a kind to one recipient in a day. */
const maxDaily = 10;
/** How long an event waits for the tenant's database, which has its webhooks. */
const maxWaitMs = 600_000;
const retryMs = 60_000;

/** The people who manage a tenant; a limit bounds the mails of one event. */
const insertForManagers = `
  insert into account_notices (tenant_id, user_id, kind, details, trace_id, expires_at)
  select e.tenant_id, u.id, e.kind, $2, e.trace_id, e.expires_at
    from account_notices e
    join users u on u.tenant_id = e.tenant_id and u.kind = 'person' join roles r on r.id = u.role_id
   where e.id = $1 and ${isManager}
   order by u.id limit 50`;

/**
 * The notices of `account_notices`. An event is one row, which the change has written; whoever
 * leases it reads the facts, and adds a row for each person who manages the tenant.
 */
export class NoticeSource implements MailSource<LeasedNotice> {
  readonly queue: NoticeQueue;
  /** One at a time, so that mails that people wait for have the other connections. */
  readonly maxRunning = 1;
  readonly pollMs = 3_000;
  readonly expiredReason = 'its time has passed';
  readonly #options: NoticeSourceOptions;

  constructor(options: NoticeSourceOptions) {
    this.#options = options;
    this.queue = new NoticeQueue(options.control, options.processId);
  }

  isReady(): boolean {
    return true;
  }

  async findRecipient(notice: LeasedNotice): Promise<LeasedNotice | NotSent> {
    return notice.earlier >= maxDaily ? 'limited' : notice;
  }

  async begin(notice: LeasedNotice, tenant: TenantRecord): Promise<BegunAttempt | undefined> {
    if (notice.isEvent) {
      await this.#inform(notice, tenant);
      return undefined;
    }

    const begun = await this.queue.begin(notice);
    if (!begun) return undefined;

    const { publicUrl } = this.#options;
    const isLast = notice.earlier === maxDaily - 1;
    const { attempt, email } = begun;
    return {
      attempt,
      email,
      compose: () =>
        composeNotice({ publicUrl, tenant, to: email, at: notice.createdAt, isLast }, notice),
    };
  }

  /** Adds the notices of an event, unless there is nothing to say. */
  async #inform(event: LeasedNotice & NoticeEvent, tenant: TenantRecord): Promise<void> {
    const facts = await this.#readFacts(event, tenant);
    if (facts === 'later') {
      const reason = 'the database of the tenant cannot be read';
      await this.queue.postpone(event, { reason, delayMs: retryMs, mayHaveArrived: false });
      return;
    }

    await transactControl(this.#options.control, async query => {
      if (!(await this.queue.endEvent(query, event))) return;

      if (facts) await query('notices_insert_for_managers', insertForManagers, [event.id, facts]);
    });
  }

  async #readFacts(
    event: LeasedNotice & NoticeEvent,
    tenant: TenantRecord,
  ): Promise<object | 'later' | undefined> {
    const { control } = this.#options;
    const { tenantId } = event;
    if (event.kind === 'keys_ending') return readEndingKeys(control, tenantId, event.details);
    if (event.kind === 'clients_ended') return readEndedClients(control, tenantId, event.details);
    if (event.kind === 'provider_changed' || event.kind === 'sign_in_rules_changed') {
      return readMaker(control, tenantId, event.details);
    }
    if (event.kind === 'accounts_made') return readMadeAccounts(control, tenantId, event.details);

    const webhooks = await this.#readWebhooks(tenant, event.details.userId);
    if (!webhooks && event.ageMs < maxWaitMs) return 'later';
    return readMadeThings(control, tenantId, event.details, webhooks);
  }

  /** @returns undefined when the database of the tenant cannot be read */
  async #readWebhooks(
    tenant: TenantRecord,
    userId: number,
  ): Promise<readonly string[] | undefined> {
    const { log, readWebhooks } = this.#options;
    try {
      return await readWebhooks(tenant, userId);
    } catch (error) {
      log.warn(
        { event: 'notice_waits', tenant: tenant.guid, err: describeError(error) },
        'the webhooks of a person who was disabled cannot be read: the mail on them waits, ten minutes at most',
      );
      return undefined;
    }
  }
}
