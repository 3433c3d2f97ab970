import type { BackupTarget } from './targets/backup-target.ts';

/** Opens the target that `BACKUP_TARGET` names. @throws {OperatorError} when there is none */
export async function openBackupTarget(): Promise<BackupTarget> {
  const { openTarget } = await import('./targets/open-target.ts');
  const { readConfig } = await import('../../config/config.ts');
  return openTarget(readConfig().backup);
}
