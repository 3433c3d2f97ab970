import { STATUS_CODES } from 'node:http';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { migrationNames } from '../../lib/postgres/migration-names.ts';
import { quoteLiteral } from '../../lib/postgres/quote.ts';
import type { FailingWebhook } from '../../sales/webhooks/failing-webhook.ts';
import { countText } from '../command/texts.ts';
import { doneSql, guidOfFinding, isDoneSql, lastReportSql } from './done-since.ts';

/**
 * The health of a tenant, as far as the control database knows it, the best state first. A
 * decision about it, such as `suspended`, is its status.
 *
 * `unchecked`: the tenant was not checked since it was made, or since a fault was repaired.
 * `unwell`: the tenant is not served, or not safe.
 */
export const healthStates = ['well', 'unchecked', 'warning', 'unwell'] as const;
export type Health = (typeof healthStates)[number];

/** A reason why a tenant is not well. */
export interface HealthReason {
  /** `done`: the remedy was carried out, and nobody has checked since. */
  severity: 'error' | 'warning' | 'unchecked' | 'done';
  /** The name of a check of doctor, or of a fact in the control database. */
  check: string;
  text: string;
  /** The time since which the reason holds, as ISO 8601; null: unknown. */
  since: string | null;
  /** The remedy: an imperative sentence with its command. */
  remedy: string;
  /** The id of the finding; null: no report of doctor has it. */
  finding: string | null;
}

/** A reason as the control database has it. */
type StoredReason = Pick<HealthReason, 'severity' | 'check' | 'since'> & {
  detail: Record<string, unknown>;
};

/** A tenant's health, as SQL returns it. */
export interface StoredHealth {
  health: Health;
  reasons: StoredReason[];
}

/** The time for which a receiver may fail: one that is restarted fails for a shorter time. */
const maxFailing = `interval '3 minutes'`;
/**
 * The time for which due webhooks may wait: longer than a pause of all processes of the
 * service.
 */
const maxWaiting = `interval '10 minutes'`;

/** The checks whose facts the control database has itself, more recent than the last report. */
const knownBetter = `('behind', 'webhooks_behind')`;

/**
 * The one place that decides whether a tenant is well: from the last report of doctor, and from
 * the other facts of the control database. Returns common table expressions, the last of which,
 * `health`, has a row for each tenant of `picked` that is not well. A statement for all tenants
 * leaves out `reasons`, which are needed only for the tenants that are shown: PostgreSQL then
 * does not compute them, as long as the columns of all parts of their union have the same types.
 * @param picked SQL of the tenants: `select t.* from tenants t …`
 */
export async function healthSql(picked: string): Promise<string> {
  const head = quoteLiteral((await migrationNames('tenant')).at(-1) ?? '');

  return `
  picked as materialized (${picked}),
  last as materialized (${lastReportSql}),
  done as materialized (${doneSql}),
  found as materialized (
    select finding, at::int as at, ${guidOfFinding('finding')} as guid, finding ->> 'check' as check_name,
           finding ->> 'server' as server,
           case when ${isDoneSql('finding')} then 'done' else finding ->> 'severity' end as severity
      from last, jsonb_array_elements(report -> 'findings') with ordinality as each (finding, at)
     where not (finding ->> 'fixed')::boolean),
  failed as materialized (
    select o.tenant_id, o.run_id, coalesce(o.finished_at, o.started_at) as at
      from (select tenant_id, max(run_id) as run from migration_outcomes
             where state = 'failed' and tenant_id in (select id from picked) group by 1) newest
      join migration_outcomes o on o.tenant_id = newest.tenant_id and o.run_id = newest.run and o.state = 'failed'
     where not exists (select from migration_outcomes later where later.tenant_id = o.tenant_id
                          and later.run_id > o.run_id and later.state in ('migrated', 'current'))),
  webhooks as (
    select w.*, coalesce(waiting_since, due_at) as waits_since
      from webhook_tenants w join picked t on t.id = tenant_id
     where is_active and t.status = 'active' and not isolated),
  reasons as (
    select t.id, severity, check_name, finding as detail, null::timestamptz as since, at
      from found join picked t on t.guid = found.guid
     where check_name not in ${knownBetter}
    union all
    select t.id, severity, check_name, finding, null, at
      from found join servers s on s.name = found.server join picked t on t.server_id = s.id
     where found.guid is null and check_name = 'server_unreachable'
    union all
    select tenant_id, 'error', 'migration_failed',
           jsonb_build_object('run', run_id, 'error', (
             select error from migration_outcomes o where o.tenant_id = f.tenant_id and o.run_id = f.run_id)),
           at, 0
      from failed f
    union all
    select t.id, 'error', 'behind', jsonb_build_object('version', schema_version, 'head', ${head}::text), null, 0
      from picked t
     where status <> 'provisioning' and (schema_version is null or schema_version collate "C" < ${head})
       and id not in (select tenant_id from failed)
    union all
    select tenant_id, 'warning', 'webhook_failing', coalesce(failing_webhook, '{}') || jsonb_build_object('failing', failing),
           failing_since, 0
      from webhooks where failing > 0 and failing_since < now() - ${maxFailing}
    union all
    select tenant_id, 'warning', 'webhooks_waiting', '{}', waits_since, 0
      from webhooks where waits_since < now() - ${maxWaiting}
    union all
    select t.id, 'error', 'archive_faulty', jsonb_build_object('fault', a.fault), a.archived_at, 0
      from picked t join archives a on a.tenant_guid = guid
     cross join lateral (
       select name from archives
        where target = a.target and tenant_guid = a.tenant_guid and state = 'complete'
        order by archived_at desc limit 1) newest
     where a.target = (select backup_target from installation) and a.state = 'complete' and a.fault is not null
       and a.name = newest.name
    union all
    select t.id, 'unchecked', 'unchecked', '{}', t.created_at, 0
      from picked t left join last on true where made_at is null or t.created_at > made_at),
  ranked as (
    select *, case severity when 'error' then 3 when 'warning' then 2 else 1 end as rank from reasons),
  health as not materialized (
    select r.id, max(rank) as rank, min(since) as since, bool_and(check_name = 'server_unreachable') as is_of_server,
           bool_or(severity = 'done') as has_done,
           jsonb_agg(jsonb_build_object('severity', severity, 'check', check_name, 'since', ${isoTime('since')},
                       'detail', detail || jsonb_build_object('slug', slug)) order by rank desc, at, check_name) as reasons
      from ranked r join picked on picked.id = r.id group by r.id)`;
}

/** SQL of the columns of `StoredHealth`, where `health` is joined. */
export const healthColumns = `
  ${healthOf('health.rank')} as health, coalesce(health.reasons, '[]') as reasons`;

/**
 * SQL of a state of health.
 * @param rank SQL
 */
export function healthOf(rank: string): string {
  return `case ${rank} when 3 then 'unwell' when 2 then 'warning' when 1 then 'unchecked' else 'well' end`;
}

/** Turns the reasons that SQL has returned into words. */
export function toReasons(stored: readonly StoredReason[]): HealthReason[] {
  return stored.map(({ severity, check, since, detail }) => {
    const { text, remedy, id } =
      wordings[check]?.(detail as never) ?? wordsOfFinding(detail as never);
    return { severity, check, text, since, remedy, finding: id ?? null };
  });
}

interface Wording {
  readonly text: string;
  readonly remedy: string;
  readonly id?: string;
}

function wordsOfFinding({
  problem,
  remedy,
  id,
}: {
  problem: string;
  remedy: string;
  id: string;
}): Wording {
  return { text: problem, remedy, id };
}

type Words<Detail> = (detail: Detail & { readonly slug: string }) => Wording;

/** The words for reasons that no report of doctor has. */
const wordings: Readonly<Record<string, Words<never>>> = {
  migration_failed: (({ slug, run, error }) => ({
    text: `the last migration failed, in run ${run}: ${error ?? 'nobody knows why'}`,
    remedy: `When the cause is gone, migrate it again: bin/backoffice migrate ${slug}`,
  })) satisfies Words<{ run: number; error: string | null }>,
  behind: (({ slug, version, head }) => ({
    text: `the database is at ${version ?? 'no known version'}, this build needs ${head}`,
    remedy: `Migrate it: bin/backoffice migrate ${slug}`,
  })) satisfies Words<{ version: string | null; head: string }>,
  webhook_failing: (({ slug, failing, ...webhook }) => ({
    text: failing > 1 ? `${failing} webhooks fail; ${failingText(webhook)}` : failingText(webhook),
    remedy: `Tell the tenant, who owns the receiver. See what was tried: bin/backoffice webhooks ${slug}`,
  })) satisfies Words<FailingWebhook & { failing: number }>,
  webhooks_waiting: (({ slug }) => ({
    text: `the webhooks of ${slug} are due, and no process of the service serves them`,
    remedy:
      'Find out whether a process of the service runs, and read its log: bin/backoffice processes',
  })) satisfies Words<object>,
  archive_faulty: (({ slug, fault }) => ({
    text: `the newest archive is faulty: ${fault}`,
    remedy: `Make another one: bin/backoffice backup run ${slug}`,
  })) satisfies Words<{ fault: string }>,
  unchecked: (() => ({
    text: 'doctor has not looked at it yet',
    remedy: 'Check the installation: bin/backoffice doctor',
  })) satisfies Words<object>,
};

/** The behaviour of a receiver, by the error of an attempt without a response. */
const silences: Readonly<Record<string, string>> = {
  'refused address': 'its address is one that nothing is sent to',
  timeout: 'its receiver does not answer in time',
  TLS: 'the certificate or the TLS of its receiver is wrong',
  'no connection': 'its receiver takes no connection',
  secret: 'its secret cannot be opened',
};

/**
 * Describes the end of the last attempt to send something: `its receiver answers 503 Service
 * Unavailable`.
 */
export function attemptText({ status, error }: Pick<FailingWebhook, 'status' | 'error'>): string {
  if (status !== null) {
    return `its receiver answers ${`${status} ${STATUS_CODES[status] ?? ''}`.trim()}`;
  }

  return silences[error ?? ''] ?? 'its last attempt failed';
}

function failingText({ id, host, waiting, isMore, ...attempt }: FailingWebhook): string {
  if (id === undefined) return 'a webhook fails';

  const waits = `${isMore ? 'more than ' : ''}${countText(waiting, 'message')} ${waiting === 1 ? 'waits' : 'wait'}`;
  return `webhook ${id} to ${host} fails: ${attemptText(attempt)}; ${waits}`;
}
