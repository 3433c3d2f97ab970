import { countText, sizeText } from '../command/texts.ts';
import type { BackupOutcome } from './backup-effects.ts';
import type { ArchiveCheck, DrillOutcome } from './check-archives.ts';
import type { ArchiveSummary } from './list-archives.ts';
import type { BackupReport, PlannedBackup } from './run-backup.ts';

const controlName = '(control database)';

/** Formats the result of a run for one database as one line. */
export function outcomeText({ slug, state, rows, bytes, ms, error }: BackupOutcome): string {
  const name = slug ?? controlName;
  if (state === 'failed') return `${name}: failed: ${error}`;
  if (state === 'unchanged') return `${name}: unchanged`;
  return `${name}: archived ${countText(rows, 'row')}, ${sizeText(bytes)} (${ms} ms)`;
}

/** Formats what a run would do: the tenants that it would archive, and the number of the others. */
export function planText(planned: readonly PlannedBackup[]): string {
  const [archived, others] = [true, false].map(value => planned.filter(({ isArchived }) => isArchived === value));
  const lines = (archived ?? []).map(({ slug, fault }) => `${slug}: ${fault ?? 'would be archived'}`);
  return [
    ...lines,
    `${countText(lines.length, 'tenant')} and the control database would be archived, ` +
      `${others?.length ?? 0} unchanged.`,
  ].join('\n');
}

/** Formats the end of a run. */
export function reportText(report: BackupReport, target: string): string {
  const { archived, unchanged, failed, bytes, removed, missing, ms } = report;
  const counts = [`${archived} archived (${sizeText(bytes)})`, `${unchanged} unchanged`, `${failed} failed`];
  if (removed > 0) counts.push(`${countText(removed, 'old archive')} removed`);
  const text = `${target}: ${counts.join(', ')} in ${(ms / 1_000).toFixed(1)} s.`;
  if (missing.length === 0) return text;
  return `${text}\nThe target has lost ${countText(missing.length, 'archive')}: ${missing.slice(0, 3).join(', ')}${
    missing.length > 3 ? ', …' : ''
  }. All of them: bin/backoffice backup list`;
}

/** Returns a row of `backup list`. */
export function archiveRow(archive: ArchiveSummary): object {
  const { slug, snapshotAt, rows, bytes, unchangedAt, verifiedAt, provedAt, fault, file } = archive;
  return {
    tenant: slug ?? controlName,
    snapshot: snapshotAt,
    'unchanged until': unchangedAt,
    size: sizeText(bytes),
    rows,
    verified: verifiedAt,
    proved: provedAt,
    state: fault === null ? 'ready' : 'failed',
    file,
  };
}

/** Formats a faulty archive as one line. */
export function checkText({ slug, file, fault, message }: ArchiveCheck): string {
  return `${slug ?? controlName}: ${file}: ${fault === null ? 'right' : `${fault}: ${message}`}`;
}

/** Formats the result of a drill for one archive as one line. */
export function drillText({ slug, file, state, rows, ms, error, notArchived }: DrillOutcome): string {
  if (state === 'failed') return `${slug}: ${file}: failed: ${error}`;
  const rest = notArchived.length > 0 ? `; not in its archives: ${notArchived.join(', ')}` : '';
  return `${slug}: proved, ${countText(rows, 'row')} restored and compared (${ms} ms)${rest}`;
}
