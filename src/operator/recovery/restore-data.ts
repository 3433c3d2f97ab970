import type { Tenant } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { openBackupTarget } from '../archives/open-backup-target.ts';
import type { Progress } from '../command/operation-context.ts';
import { optionalSecret } from '../command/operation-fields.ts';
import type { EarlierData } from '../databases/fill-database.ts';

/** The field of a command that reads the URL of a recovered server, which holds a password, from stdin. */
export const fromField = optionalSecret(
  'URL of the recovered server',
  '--from',
  'from a recovered server; its postgresql:// URL is read from stdin, because it holds a password',
);

/** Which data of a tenant is restored (that of an archive, of a recovered server, or of a moment), and where. */
export interface RestoredMoment {
  at: string | undefined;
  archive: string | undefined;
  from: string | undefined;
  /** True if it takes the place of a lost database. */
  lost?: boolean;
}

interface Restored<T> {
  restored: T;
  restoredFrom: string;
  seconds: number;
}

/** Runs `restore` on the chosen data of a tenant; without a choice, on that of its newest archive. */
export async function restoreData<T>(
  installation: Installation,
  source: Tenant,
  { at, archive: id, from, lost = false }: RestoredMoment,
  progress: Progress,
  restore: (data: EarlierData) => Promise<T>,
): Promise<Restored<T>> {
  if ([at, id, from].filter(value => value !== undefined).length > 1)
    throw new OperatorError('Give one of --at, --archive and --from', { usage: true });
  const startedAt = performance.now();
  const resultOf = (restored: T, restoredFrom: string): Restored<T> => {
    const seconds = Math.round((performance.now() - startedAt) / 10) / 100;
    return { restored, restoredFrom, seconds };
  };
  const onStep = (text: string): void => progress.step(text);
  if (at !== undefined) {
    const { readConfig } = await import('../../config/config.ts');
    const { restoreToMoment } = await import('./restore-to-moment.ts');
    const options = { command: readConfig().recoveryCommand, at, onStep };
    return resultOf(await restoreToMoment(installation, source, options, restore), at);
  }
  if (from !== undefined) {
    const { namesOf, restoreRecovered } = await import('./recovered-tenant.ts');
    const { parseServerUrl } = await import('../tenants/parse-server-url.ts');
    const url = parseServerUrl(from);
    let description = '';
    const restored = await restoreRecovered(
      source,
      { url, names: await namesOf(installation, source), onStep },
      data => {
        ({ description } = data);
        return restore(data);
      },
    );
    return resultOf(restored, description);
  }
  const { restoreArchive } = await import('./restore-archive.ts');
  const target = await openBackupTarget();
  const options = { target, archive: id, destination: lost ? '--lost' : '', onStep };
  const { restored, archive } = await restoreArchive(installation, source, options, restore);
  return resultOf(restored, `${archive.file} of ${archive.snapshotAt.toISOString()}`);
}
