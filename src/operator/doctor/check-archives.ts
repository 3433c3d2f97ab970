import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import type { StrayFolder } from '../backup/archive-list.ts';
import { presentTarget } from '../backup/archive-rows.ts';
import { type HistoryKind, kindNames } from '../backup/retention/history-kinds.ts';
import { cutoffOf } from '../backup/retention/retention-age.ts';
import { countText, sizeText } from '../command/texts.ts';
import { type Finding, toFinding } from './finding.ts';

/** The age of a proof, in days, at which doctor reports it. */
const maxProofDays = 7;

/** Facts of the control database about archives. */
export interface ArchiveFacts {
  /** Objects that count for nothing, by folder, as the newest run has seen them. */
  readonly strays: readonly StrayFolder[];
  /** Newest archives that a run has not found in the last day, each with the reason. */
  readonly lost: readonly { readonly name: string; readonly error: string }[];
  /** Tenants that the control database does not know, and that have archives. */
  readonly unknown: readonly {
    readonly guid: string;
    readonly archives: number;
    readonly bytes: number;
  }[];
  /** Purged tenants whose archives the target still has, or may have. */
  readonly purged: readonly {
    readonly guid: string;
    readonly slug: string;
    readonly purgedAt: string;
    readonly target: string | null;
    readonly left: readonly string[];
    readonly error: string | null;
  }[];
  /** Old archives that the target refused to remove in the newest run. */
  readonly notRemoved: number;
  /** True if there is an archive of a tenant. */
  readonly hasArchives: boolean;
  /**
   * The time at which an archive was last restored and compared (ISO 8601, UTC); null: never.
   */
  readonly provedAt: string | null;
  /** True if the last proof was within the last seven days. */
  readonly isProvedLately: boolean;
}

const utc = (value: string): string =>
  `to_char(${value} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`;

/** The days for which a removal may be due before doctor reports it. */
const maxDueDays = 60;

/** A tenant from which rows should have been removed long ago. */
export interface OverdueRetention {
  readonly slug: string;
  readonly server: string;
  /** Rows from before this moment are older than the tenant keeps them, by 60 days and more. */
  readonly cutoff: Date;
}

/**
 * Returns the tenants whose retention asked for a removal 60 days ago that was not done since in
 * their present database, or in the one that it has replaced in this time.
 */
export async function readOverdueRetention(client: Queryable): Promise<OverdueRetention[]> {
  const { rows } = await client.query<{
    slug: string;
    server: string;
    activity: string;
    audit: string;
    activityDone: Date | null;
    auditDone: Date | null;
    dueSince: Date;
  }>(
    `select slug, s.name as server, coalesce(p.activity, d.activity, 'forever') as activity,
            coalesce(p.audit, d.audit, 'forever') as audit, now() - make_interval(days => ${maxDueDays}) as "dueSince",
            ${kindNames.map(kind => `${lastDone(kind)} as "${kind}Done"`).join(', ')}
       from tenants t join servers s on s.id = t.server_id
       join tenant_databases own on own.tenant_id = t.id and own.state = 'current'
       left join retention_policies p on p.tenant_id = t.id
       left join retention_policies d on d.tenant_id is null
      where status <> 'provisioning' and purging_at is null
        and t.created_at < now() - make_interval(days => ${maxDueDays})
        and coalesce(p.changed_at, d.changed_at) < now() - make_interval(days => ${maxDueDays})
      order by slug`,
  );

  return rows.flatMap(row => {
    const done = { activity: row.activityDone, audit: row.auditDone };
    const cutoffs = kindNames.flatMap(kind => {
      const cutoff = cutoffOf(row[kind], row.dueSince);
      const last = done[kind];
      return cutoff === undefined || (last !== null && last >= cutoff) ? [] : [cutoff];
    });
    const [cutoff] = cutoffs;

    return cutoff === undefined ? [] : [{ slug: row.slug, server: row.server, cutoff }];
  });
}

/**
 * SQL for the last cutoff before which the rows of a kind were removed from a tenant. A restored
 * database may have the rows that were removed from the former one; they are due from then on.
 */
const lastDone = (kind: HistoryKind): string =>
  `(select max(removed_before) from history_removals r
     where r.tenant_id = t.id and kind = '${kind}' and r.state = 'done'
       and (r.database_name = own.database_name or own.current_since > now() - make_interval(days => ${maxDueDays})))`;

/** Reports tenants that keep rows for 60 days longer than they should. */
export function checkRetention(overdue: readonly OverdueRetention[]): Finding[] {
  return overdue.map(({ slug, server, cutoff }) =>
    toFinding(server, {
      check: 'retention_behind',
      tenant: slug,
      problem: `rows of ${slug} from before ${cutoff.toISOString().slice(0, 10)} should have been removed ${maxDueDays} days ago`,
      remedy: `See why it is left out, and apply it on the recovery host: bin/backoffice retention apply ${slug} --dry-run`,
    }),
  );
}

/** Maximum unknown tenants that are reported: a stranger can make a folder for each guid. */
const maxUnknown = 100;

/** SQL of the archives that count. */
const complete = `archives where target = ${presentTarget} and state = 'complete'`;

/** @param client connected to the control database */
export async function readArchiveFacts(client: Queryable): Promise<ArchiveFacts> {
  const { rows } = await client.query<{ [Field in keyof ArchiveFacts]: ArchiveFacts[Field] }>(
    `select coalesce((select strays from backup_runs where finished_at is not null and state <> 'abandoned'
                       order by id desc limit 1), '[]') as strays,
            (select coalesce(json_agg(json_build_object('name', name, 'error', error) order by removed_at), '[]')
               from archives
              where state = 'gone' and error is not null and removed_at > now() - interval '1 day') as lost,
            (select coalesce(json_agg(found order by guid), '[]')
               from (select tenant_guid as guid, count(*) as archives, coalesce(sum(bytes), 0) as bytes from archives
                      where target = ${presentTarget} and state in ('complete', 'unproved') and tenant_guid is not null
                        and not exists (select from tenants where guid = tenant_guid)
                        and not exists (select from purged_tenants where guid = tenant_guid)
                      group by 1 order by 1 limit ${maxUnknown}) as found) as unknown,
            (select coalesce(json_agg(json_build_object('guid', guid, 'slug', slug, 'purgedAt', ${utc('purged_at')},
                                                        'target', archives_target, 'left', archives_left,
                                                        'error', archives_error) order by id), '[]')
               from purged_tenants where archives = 'left') as purged,
            coalesce((select not_removed from backup_runs where finished_at is not null
                       order by id desc limit 1), 0) as "notRemoved",
            exists (select from ${complete} and tenant_guid is not null) as "hasArchives",
            (select ${utc('max(proved_at)')} from ${complete}) as "provedAt",
            exists (select from ${complete}
                       and proved_at > now() - make_interval(days => ${maxProofDays})) as "isProvedLately"`,
  );
  const [facts] = rows;
  if (!facts) throw new Error('the control database has returned nothing of its archives');

  return facts;
}

const maxNamed = 3;
const maxNameLength = 200;

/**
 * Reports objects without a row, archives that are lost, archives of unknown tenants, archives
 * of purged tenants that are left, archives that cannot be removed, and a week without a
 * restored archive.
 * @param server the name of the server of the control database
 */
export function checkArchives(facts: ArchiveFacts, server: string): Finding[] {
  const { strays, lost, unknown, purged, notRemoved, hasArchives, provedAt, isProvedLately } =
    facts;

  return [
    ...strays.map(({ folder, objects, bytes, name, size, modifiedAt }) =>
      toFinding(server, {
        check: 'stray_objects',
        problem:
          `the backup target has ${countText(objects, 'object')} (${sizeText(bytes)}) in ${shownName(folder)} that no run ` +
          `here is known to have written, the newest ${shownName(name)} (${sizeText(size)}, ${modifiedAt} by its clock)`,
        remedy:
          'They count for nothing. See on the recovery host whether they are archives of ours: ' +
          'bin/backoffice backup recognise. If not, remove them with the tools of the store.',
      }),
    ),
    ...(lost.length > 0
      ? [
          toFinding(server, {
            check: 'archives_lost',
            problem: `in the last day, runs did not find the newest archive of ${countText(lost.length, 'database')}: ${namesText(lost.map(({ name, error }) => `${name} (${error})`))}`,
            remedy:
              'Find out who has removed or changed them, unless it was a rule of the bucket. New ones are made: bin/backoffice backup run --all',
          }),
        ]
      : []),
    ...unknown.map(({ guid, archives, bytes }) =>
      toFinding(server, {
        check: 'unknown_archives',
        problem: `the backup target has ${countText(archives, 'archive')} (${sizeText(bytes)}) of a tenant that nobody here knows: ${guid}`,
        remedy: `Nothing removes them. List them: bin/backoffice backup list -o wide. If nobody needs them, remove the folder tenants/${guid} of this installation with the tools of the store.`,
      }),
    ),
    ...purged.map(({ guid, slug, purgedAt, target, left, error }) =>
      toFinding(server, {
        check: 'purged_archives_left',
        problem:
          `${slug} (${guid}) was purged at ${purgedAt}, and ${target ?? 'the backup target'} still has ` +
          `${left.length > 0 ? `archives of it: ${namesText(left)}` : 'or may have archives of it'} (${error ?? 'their removal did not end'})`,
        remedy: `Let the login of BACKUP_TARGET remove them and their versions, then run: bin/backoffice purge ${slug}`,
      }),
    ),
    ...(notRemoved > 0
      ? [
          toFinding(server, {
            check: 'archives_not_removed',
            problem: `the backup target refused to remove ${countText(notRemoved, 'old archive')} in the newest run`,
            remedy:
              'Give the login of BACKUP_TARGET the right to delete. Or keep all, and let a rule of the bucket remove them: BACKUP_KEEP=all',
          }),
        ]
      : []),
    ...(hasArchives && !isProvedLately
      ? [
          toFinding(server, {
            check: 'archives_unproved',
            problem: provedAt
              ? `the last archive was restored and compared at ${provedAt}`
              : 'no archive was ever restored and compared',
            remedy:
              'Start a drill on the recovery host, which has the identity: bin/backoffice backup drill',
          }),
        ]
      : []),
  ];
}

function namesText(names: readonly string[]): string {
  const rest = names.length - maxNamed;

  return names.slice(0, maxNamed).join(', ') + (rest > 0 ? ` and ${rest} more` : '');
}

/** Returns a name that a stranger may have chosen, without control characters. */
function shownName(name: string): string {
  return name.replace(/[^\x20-\x7e]/g, '?').slice(0, maxNameLength);
}
