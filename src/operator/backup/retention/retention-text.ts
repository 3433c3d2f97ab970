import { countText } from '../../command/texts.ts';
import type { RetentionOutcome, RetentionReport } from './apply-retention.ts';
import { historyKinds } from './history-kinds.ts';
import type { TenantRetention } from './policies.ts';
import type { RemovalSummary } from './removals.ts';

/** Returns a row of `retention`. */
export function retentionRow({
  slug,
  activity,
  audit,
  people,
  logins,
  own,
  activitiesRemovedBefore,
  auditRemovedBefore,
}: Pick<TenantRetention, 'slug' | 'activity' | 'audit'> &
  Partial<TenantRetention> & { people?: string; logins?: string }): object {
  return {
    tenant: slug,
    activities: activity,
    'audit entries': audit,
    'of users and roles': people,
    logins,
    set: own && (own.activity ?? own.audit) !== null ? 'own' : 'default',
    'activities removed before': activitiesRemovedBefore?.slice(0, 10),
    'audit entries removed before': auditRemovedBefore?.slice(0, 10),
  };
}

/** Returns a row of `retention log`. */
export function removalRow(removal: RemovalSummary): object {
  const { slug, kind, rows, oldest, newest, state, archive, requestedBy, startedAt, error } =
    removal;

  return {
    tenant: slug,
    rows,
    of: kind,
    from: oldest,
    to: newest,
    state,
    at: startedAt,
    by: requestedBy,
    'proved archive': archive ?? 'none was asked for',
    error,
  };
}

/** Formats the result for one tenant, one line for each kind of rows. */
export function retentionOutcomeText({
  slug,
  state,
  removed,
  ms,
  error,
}: RetentionOutcome): string {
  const verb = state === 'planned' ? 'would remove' : 'removed';
  const lines = removed.map(({ kind, rows, oldest, newest, archive }) => {
    const proof = archive === null ? 'no archive was asked for' : `which archive ${archive} has`;
    const span = `${oldest?.slice(0, 10)} to ${newest?.slice(0, 10)}`;
    return `${slug}: ${verb} ${countText(rows, historyKinds[kind].noun, historyKinds[kind].noun)} from ${span}, ${proof} (${ms} ms)`;
  });

  if (error !== null) lines.push(`${slug}: ${state}: ${error}`);
  return lines.join('\n');
}

/** Formats the end of a run. */
export function retentionReportText(
  { tenants, leftOut, failed, rows, ms }: RetentionReport,
  dryRun: boolean,
): string {
  const verb = dryRun ? 'to remove' : 'removed';

  return (
    `${countText(tenants, 'tenant')} examined, ${countText(rows, 'row')} ${verb}, ${leftOut} left out, ${failed} failed ` +
    `in ${(ms / 1_000).toFixed(1)} s.`
  );
}
