import type { Tenant } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import type { EarlierData } from '../databases/fill-database.ts';
import type { Progress } from './operation-context.ts';

/** Which data of a tenant is restored (that of its newest archive, of another archive, or of a moment), and where. */
export interface RestoredMoment {
  at: string | undefined;
  archive: string | undefined;
  /** The option of the command that says where, `--lost`; empty: beside the tenant. */
  destination: string;
}

interface Restored<T> {
  restored: T;
  restoredFrom: string;
  seconds: number;
}

/** Runs `restore` on the chosen data of a tenant. */
export async function restoreData<T>(
  installation: Installation,
  source: Tenant,
  { at, archive: id, destination }: RestoredMoment,
  progress: Progress,
  restore: (data: EarlierData) => Promise<T>,
): Promise<Restored<T>> {
  if (at !== undefined && id !== undefined) throw new OperatorError('Give either --at or --archive', { usage: true });
  const { readConfig } = await import('../../config.ts');
  const startedAt = performance.now();
  const resultOf = (restored: T, restoredFrom: string): Restored<T> => {
    const seconds = Math.round((performance.now() - startedAt) / 10) / 100;
    return { restored, restoredFrom, seconds };
  };
  const onStep = (text: string): void => progress.step(text);
  if (at !== undefined) {
    const { restoreToMoment } = await import('../restore/moment/restore-to-moment.ts');
    const options = { root: readConfig().baseBackupDir, at, onStep };
    return resultOf(await restoreToMoment(installation, source, options, restore), at);
  }
  const { openTarget } = await import('../backup/targets/open-target.ts');
  const { restoreArchive } = await import('../restore/restore-archive.ts');
  const options = { target: openTarget(readConfig().backup), archive: id, destination, onStep };
  const { restored, archive } = await restoreArchive(installation, source, options, restore);
  return resultOf(restored, `${archive.file} of ${archive.snapshotAt.toISOString()}`);
}
