import type pg from 'pg';
import type { ControlStatements, Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { type RunStatement, unpreparedStatement } from '../../lib/postgres/statement.ts';
import { type FeedHolder, readFeedHolder } from '../../sales/events/held-feeds.ts';
import { type FailingState, selectFailingState } from '../../sales/webhooks/failing-webhook.ts';
import { attemptText } from './tenant-health.ts';
import { connectTenant, findTenant, holdOpen } from './tenants.ts';

/** The webhooks of a tenant, as they were when they were served last. */
export interface TenantWebhooks {
  tenant: string;
  failing: number;
  failingSince: string | null;
  disabled: number;
  /** The seconds for which the tenant has waited to be served; null: it does not wait. */
  waiting: number | null;
}

/** A webhook of one tenant. */
export interface WebhookStatus {
  id: number;
  url: string;
  state: 'enabled' | 'failing' | 'disabled';
  /** The reason why the webhook is disabled, or the failure of its last attempt. */
  reason: string | null;
  failures: number;
  failingSince: string | null;
  nextAttemptAt: string | null;
  /**
   * Changes and other messages that are still to be sent: of very many changes, the first ones.
   */
  waiting: number;
  /** The time of the first of these changes; null: none waits. */
  waitingSince: string | null;
}

/** A row of `webhooks`. */
interface StoredWebhook extends Omit<WebhookStatus, 'waiting' | 'waitingSince'> {
  position: string;
  resources: string[];
  actions: string[];
}

/** Returns the tenants with an enabled webhook, or one that the service has disabled. */
export async function readTenantWebhooks({
  statements,
}: ControlStatements): Promise<TenantWebhooks[]> {
  const { rows } = await statements.query<TenantWebhooks>(
    `select slug as tenant, failing, ${isoTime('failing_since')} as "failingSince", disabled,
            extract(epoch from now() - waits)::float8 as waiting
       from (select *, case when coalesce(waiting_since, due_at) < now() and is_active and not isolated and status = 'active'
                       then coalesce(waiting_since, due_at) end as waits
               from webhook_tenants join tenants t on t.id = tenant_id) w
      where is_active or disabled > 0 order by slug`,
  );

  return rows;
}

/** Returns the webhooks of a tenant, from its database. */
export async function readWebhooks(
  installation: Installation,
  slug: string,
): Promise<WebhookStatus[]> {
  return onTenant(installation, slug, async query => {
    const text = `
      select id, url, case when not is_enabled then 'disabled' when failing_since is null then 'enabled' else 'failing' end as state,
             disabled_reason as reason, failures, ${isoTime('failing_since')} as "failingSince",
             ${isoTime('next_attempt_at')} as "nextAttemptAt", position, resources, actions
        from webhooks w order by id`;
    const found = await query(unpreparedStatement<StoredWebhook>(text, []));

    const webhooks: WebhookStatus[] = [];
    for (const { position, resources, actions, ...webhook } of found) {
      const [now] = await query(
        selectFailingState({ id: webhook.id, position, resources, actions }),
      );
      const { waiting, waitingSince, ...attempt } = now as FailingState;
      const reason = webhook.state === 'failing' ? attemptText(attempt) : webhook.reason;
      webhooks.push({ ...webhook, reason, waiting, waitingSince });
    }
    return webhooks;
  });
}

/**
 * Reads the transaction that holds back the changes of a tenant, and so its webhooks;
 * undefined: none has held them for 30 s.
 */
export function readHolder(
  installation: Installation,
  slug: string,
): Promise<FeedHolder | undefined> {
  return onTenant(installation, slug, readFeedHolder);
}

/**
 * Sends nothing more to a webhook until its tenant enables it again.
 * @param isDryRun true to change nothing
 * @returns the URL of the webhook
 * @throws {OperatorError} when there is no such webhook
 */
export async function disableWebhook(
  installation: Installation,
  slug: string,
  id: number,
  isDryRun: boolean,
): Promise<string> {
  const tenant = await findTenant(installation, slug);
  const url = await connectTenant(installation, tenant, client =>
    inTransaction(client, async () => {
      await holdOpen(client, tenant);
      const found = await findWebhookUrl(queryOf(client), slug, id);
      if (!isDryRun) {
        const text = `update webhooks set is_enabled = false, disabled_reason = 'operator', version = version + 1 where id = $1`;
        await client.query(text, [id]);
      }
      return found;
    }),
  );

  if (!isDryRun) await wake(installation, slug);
  return url;
}

async function onTenant<T>(
  installation: Installation,
  slug: string,
  work: (query: RunStatement) => Promise<T>,
): Promise<T> {
  return connectTenant(installation, await findTenant(installation, slug), client =>
    work(queryOf(client)),
  );
}

function queryOf(client: pg.Client): RunStatement {
  return async ({ name: _, ...statement }) => (await client.query(statement)).rows;
}

async function findWebhookUrl(query: RunStatement, slug: string, id: number): Promise<string> {
  const text = 'select url from webhooks where id = $1';
  const [webhook] = await query(unpreparedStatement<{ url: string }>(text, [id]));
  if (!webhook) {
    throw new OperatorError(
      `${slug} has no webhook ${id}. List them: bin/backoffice webhooks ${slug}`,
    );
  }
  return webhook.url;
}

/** Lets a process serve the webhooks of the tenant now. */
async function wake({ statements }: ControlStatements, slug: string): Promise<void> {
  await statements.query(
    `update webhook_tenants set due_at = now(), wakes = wakes + 1
        where tenant_id = (select id from tenants where slug = $1) and is_active`,
    [slug],
  );
}
