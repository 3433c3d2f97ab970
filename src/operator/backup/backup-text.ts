import { countText, sizeText } from '../command/texts.ts';
import type { Unremoved } from './archive-rows.ts';
import type { ArchiveSummary } from './list-archives.ts';
import type { BackupOutcome, BackupReport, PlannedBackup } from './run-backup.ts';

const controlName = '(control database)';
const maxNamed = 3;

/** Formats the result of a run for one database as one line. */
export function outcomeText({
  slug,
  state,
  rows,
  bytes,
  leftOut,
  ms,
  error,
}: BackupOutcome): string {
  const name = slug ?? controlName;
  if (state === 'failed') return `${name}: failed: ${error}`;
  if (state === 'unchanged') return `${name}: unchanged`;

  const rest = leftOut.map(({ name: object, reason }) => `${object} (${reason})`);
  const without = rest.length > 0 ? `; without ${namesText(rest)}` : '';
  return `${name}: archived ${countText(rows, 'row')}, ${sizeText(bytes)} (${ms} ms)${without}`;
}

/**
 * Formats what a run would do: the tenants that it would archive, and the number of the others.
 */
export function planText(planned: readonly PlannedBackup[]): string {
  const archived = planned.filter(({ isArchived }) => isArchived);
  const lines = archived.map(({ slug, fault }) => `${slug}: ${fault ?? 'would be archived'}`);

  return [
    ...lines,
    `${countText(lines.length, 'tenant')} and the control database would be archived, ` +
      `${planned.length - lines.length} unchanged.`,
  ].join('\n');
}

/** Formats the end of a run. */
export function backupText(report: BackupReport, target: string): string {
  const { archived, unchanged, failed, bytes, removed, notRemoved, lost, ms } = report;
  const counts = [
    `${archived} archived (${sizeText(bytes)})`,
    `${unchanged} unchanged`,
    `${failed} failed`,
  ];
  if (removed > 0) counts.push(`${countText(removed, 'old archive')} removed`);

  return [
    `${target}: ${counts.join(', ')} in ${(ms / 1_000).toFixed(1)} s.`,
    ...(lost.length > 0 ? [lostText(lost)] : []),
    ...unremovedLines(notRemoved),
  ].join('\n');
}

function lostText(lost: readonly string[]): string {
  return (
    `The target does not have the newest archive of ${namesText(lost)}, so ` +
    `${lost.length === 1 ? 'it was' : 'they were'} archived again.`
  );
}

/** Formats what the target has refused to remove. */
export function unremovedLines(notRemoved: readonly Unremoved[]): string[] {
  const [first] = notRemoved;
  if (!first) return [];

  return [
    `${countText(notRemoved.length, 'old archive')} could not be removed, which harms no archive: ` +
      `${namesText(notRemoved.map(({ name }) => name))}. ${first.error}. ` +
      'If nobody shall delete there, keep all archives, and let a rule of the bucket remove old ones: BACKUP_KEEP=all',
  ];
}

function namesText(names: readonly string[]): string {
  const rest = names.length - maxNamed;

  return names.slice(0, maxNamed).join(', ') + (rest > 0 ? ` and ${rest} more` : '');
}

/** Returns a row of `backup list`. */
export function archiveRow(archive: ArchiveSummary): object {
  const { slug, tenant, time, size, provedAt, isForPresentRecipients, isOpened } = archive;

  return {
    tenant: tenant === null ? controlName : (slug ?? tenant),
    time,
    size: sizeText(size),
    'sealed for': isForPresentRecipients ? 'present recipients' : archive.recipients,
    'opens here': isOpened === null ? null : isOpened ? 'yes' : 'no',
    proved: provedAt,
    state: stateText(archive),
  };
}

function stateText({ state, owner, fault }: ArchiveSummary): string {
  if (state !== 'complete') return state;
  if (fault !== null) return 'failed';

  return owner === 'known' ? 'ready' : owner;
}
