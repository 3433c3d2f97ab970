import type { BackupTarget } from '../backup/targets/backup-target.ts';

/** Opens the target that `BACKUP_TARGET` names. @throws {OperatorError} when there is none */
export async function openBackupTarget(): Promise<BackupTarget> {
  const { openTarget } = await import('../backup/targets/open-target.ts');
  const { readConfig } = await import('../../config.ts');
  return openTarget(readConfig().backup);
}
