import { type ControlDatabase, queryControl } from '../../control/database.ts';
import { createLeases, isLeased, type Leases, leaseTime } from '../../control/leases.ts';
import type { StoredEndpoint } from './endpoint-state.ts';
import type { FailingWebhook } from './failing-webhook.ts';

/** A tenant whose webhooks this process may serve. */
export interface LeasedTenant {
  /** The id of the entry in the queue. */
  readonly id: number;
  readonly tenantGuid: string;
  readonly slug: string;
  /** The id of the tenant's server. */
  readonly serverId: number;
  /** The sealed key of the tenant's webhook secrets. */
  readonly sealedKey: Buffer;
  /**
   * The cursor of the tenant's feed when its webhooks were served last; null: they never were.
   */
  readonly feedCursor: string | null;
}

/** The state of the webhooks of a tenant after they were served. */
export interface ServedTenant {
  /** The endpoints, each as it was read before it was served last. */
  readonly endpoints: readonly Pick<
    StoredEndpoint,
    'isEnabled' | 'disabledReason' | 'failingSince'
  >[];
  /** The enabled one that has failed for longest; undefined: none fails. */
  readonly failing: FailingWebhook | undefined;
  /**
   * The counters that a poll sees of the tenant's database if it has no change that was not
   * served.
   */
  readonly written: string | null;
  /** The last place of the feed that was read; null: none was. */
  readonly feedCursor: string | null;
  /**
   * Milliseconds until the webhooks are served next; null: when the tenant's database changes.
   */
  readonly dueInMs: number | null;
}

/**
 * Times are those of the control database: the clocks of processes may differ.
 * @param ms a parameter, in ms
 */
const delay = (ms: string): string => `${ms}::float8 * interval '1 ms'`;
const active =
  'is_active = true, activated_at = now(), due_at = now(), wakes = webhook_tenants.wakes + 1';
/** Serves the webhooks of a tenant again. */
const reactivateText = `update webhook_tenants set ${active} where tenant_id = $1 returning sealed_key as "sealedKey"`;
/**
 * Adds a tenant whose webhooks are served, or serves it again.
 * @param $2 its sealed key, unless it has one
 */
export const activateText = `
  insert into webhook_tenants (tenant_id, sealed_key) values ($1, $2)
      on conflict (tenant_id) do update set ${active}
  returning sealed_key as "sealedKey"`;
const markDueText = `
  update webhook_tenants w
     set due_at = least(due_at, now()),
         wakes = wakes + (due.written is null)::int,
         polled = coalesce(due.written, polled)
    from (select w.id, n.written
            from unnest($1::uuid[], $2::text[]) n (guid, written) join tenants t on t.guid = n.guid
            join webhook_tenants w on w.tenant_id = t.id
           where is_active and (n.written is null or n.written is distinct from polled)
           order by w.id for update of w) due
   where w.id = due.id`;
/**
 * The ids are found first, in an array: without statistics, PostgreSQL would find them again
 * for each tenant.
 */
const leaseText = `
  with next as (
    select w.id, t.guid, t.slug, t.server_id from webhook_tenants w join tenants t on t.id = tenant_id
     where w.id = any (array(select id from webhook_tenants where is_active and due_at <= now()
                              union all
                             select c.id from webhook_tenants c
                               join tenants t on t.id = tenant_id where guid = any ($4)))
       and is_active and not t.server_id = any ($3)
       and not ${isLeased('w')} and t.status = 'active' and not t.isolated
     order by due_at limit $2 for update of w skip locked)
  update webhook_tenants w set holder = $1, leased_until = now() + ${leaseTime}, due_at = now(),
         wakes = 0, polled = null, waiting_since = coalesce(waiting_since, least(due_at, now()))
    from next where w.id = next.id
  returning w.id::float8 as id, guid as "tenantGuid", slug, server_id as "serverId", sealed_key as "sealedKey",
            feed_cursor as "feedCursor"`;
const releaseText = `
  update webhook_tenants
     set holder = null, leased_until = now(), waiting_since = null, polled = $3,
         is_active = $5 > 0 or activated_at > now() - interval '1 minute',
         due_at = case when wakes > 0 or polled <> $3 then now()
                       when $5 = 0 then now() + interval '1 minute' else now() + ${delay('$4')} end,
         failing = $6, failing_since = to_timestamp($7::float8 / 1000), disabled = $8,
         feed_cursor = coalesce($9, feed_cursor), failing_webhook = $10
   where id = $1 and holder = $2
  returning due_at <= now() as "isDue"`;
const postponeText = `
  update webhook_tenants set holder = null, leased_until = now(), due_at = now() + ${delay('$3')} where id = $1 and holder = $2`;

/**
 * The tenants with webhooks, in the control database. A process holds a lease for each tenant
 * that it serves, so that one process at a time sends to an endpoint. A process that was
 * stopped for longer than its lease may send a message once more when it goes on; what it then
 * saves is refused, because another one has changed the row (`webhooks.version`).
 */
export class WebhookQueue {
  readonly #control: ControlDatabase;
  readonly #holder: string;
  /** The leases of this process. */
  readonly leases: Leases;

  /** @param holder identifies this process */
  constructor(control: ControlDatabase, holder: string) {
    this.#control = control;
    this.#holder = holder;
    this.leases = createLeases(control, 'webhook_tenants', holder);
  }

  /**
   * Adds a tenant, or makes it active again. An entry stays active for a minute, also if no
   * webhook is enabled: by then the request that makes one has ended.
   * @param createKey returns a sealed key, for a tenant that has none
   * @returns the sealed key of its secrets
   */
  async activate(tenantId: number, createKey: () => Buffer): Promise<Buffer> {
    const [known] = await this.#query<{ sealedKey: Buffer }>('reactivate', reactivateText, [
      tenantId,
    ]);
    if (known) return known.sealedKey;

    const [added] = await this.#query<{ sealedKey: Buffer }>('activate', activateText, [
      tenantId,
      createKey(),
    ]);
    return added!.sealedKey;
  }

  /**
   * Makes active tenants due, because their webhooks may have work.
   * @param woken the counters that a poll has seen, by the guid of the tenant: a tenant whose
   *   counters this or another process has seen before is not made due. Undefined: the tenant
   *   is made due in any case
   */
  async markDue(woken: ReadonlyMap<string, string | undefined>): Promise<void> {
    const written = [...woken.values()].map(each => each ?? null);
    await this.#query('mark_due', markDueText, [[...woken.keys()], written]);
  }

  /**
   * Leases tenants that are due, those that have waited longest first.
   * @param fullServers ids of servers whose tenants are left alone
   * @param changed guids of tenants that are leased, too, although they are not due
   */
  async lease(
    limit: number,
    fullServers: readonly number[],
    changed: readonly string[],
  ): Promise<LeasedTenant[]> {
    const sentAt = performance.now();
    const values = [this.#holder, limit, fullServers, changed];
    const leased = await this.#query<LeasedTenant>('lease', leaseText, values);
    for (const { id } of leased) this.leases.hold(id, sentAt);
    return leased;
  }

  /**
   * Gives a tenant back. It stays active while a webhook is enabled.
   * @returns true if it is due again
   */
  async release(
    { id }: LeasedTenant,
    { endpoints, failing: first, written, feedCursor, dueInMs }: ServedTenant,
  ): Promise<boolean> {
    this.leases.forget(id);
    const enabled = endpoints.filter(({ isEnabled }) => isEnabled);
    const failing = enabled.flatMap(({ failingSince }) => failingSince ?? []);
    const disabled = endpoints.filter(
      ({ disabledReason: why }) => why === 'gone' || why === 'failing',
    );
    const since = failing.length > 0 ? Math.min(...failing) : null;
    const counts = [enabled.length, failing.length, since, disabled.length];
    const values = [
      id,
      this.#holder,
      written,
      dueInMs,
      ...counts,
      feedCursor,
      first ? JSON.stringify(first) : null,
    ];

    const [row] = await this.#query<{ isDue: boolean | null }>('release', releaseText, values);
    return row?.isDue === true;
  }

  /** Gives a tenant back that could not be served. */
  async postpone({ id }: LeasedTenant, delayMs: number): Promise<void> {
    this.leases.forget(id);
    await this.#query('postpone', postponeText, [id, this.#holder, delayMs]);
  }

  #query<Row extends object>(name: string, text: string, values: unknown[]): Promise<Row[]> {
    return queryControl<Row>(this.#control, `webhooks_${name}`, text, values);
  }
}
