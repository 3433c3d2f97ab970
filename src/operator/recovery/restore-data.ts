import type { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { openBackupTarget } from '../archives/open-backup-target.ts';
import type { Progress } from '../command/operation.ts';
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

/** @throws {OperatorError} when data are chosen in several ways */
export function requireOneChoice({ at, archive, from }: Omit<RestoredMoment, 'lost'>): void {
  if ([at, archive, from].filter(value => value !== undefined).length > 1)
    throw new OperatorError('Give one of --at, --archive and --from', { usage: true });
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
  requireOneChoice({ at, archive: id, from });
  const startedAt = performance.now();
  const onStep = (text: string): void => progress.step(text);
  let restoredFrom = '';
  const describedRestore = (data: EarlierData): Promise<T> => {
    restoredFrom = data.description;
    return restore(data);
  };
  let restored: T;
  if (at !== undefined) {
    const { restoreToMoment } = await import('./restore-to-moment.ts');
    restored = await restoreToMoment(installation, source, { at, onStep }, describedRestore);
  } else if (from !== undefined) {
    const { namesOf, restoreRecovered } = await import('./recovered-tenant.ts');
    const { parseServerUrl } = await import('../tenants/parse-server-url.ts');
    const options = { url: parseServerUrl(from), names: await namesOf(installation, source), onStep };
    restored = await restoreRecovered(source, options, describedRestore);
  } else {
    const { restoreArchive } = await import('./restore-archive.ts');
    const options = { target: await openBackupTarget(), archive: id, destination: lost ? '--lost' : '', onStep };
    const result = await restoreArchive(installation, source, options, restore);
    restored = result.restored;
    restoredFrom = `${result.archive.file} of ${result.archive.snapshotAt.toISOString()}`;
  }
  return { restored, restoredFrom, seconds: Math.round((performance.now() - startedAt) / 10) / 100 };
}
