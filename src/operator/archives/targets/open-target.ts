import type { Config } from '../../../config/config.ts';
import { OperatorError } from '../../../log/operator-error.ts';
import type { BackupTarget } from './backup-target.ts';
import { folderTarget } from './folder-target.ts';
import { s3Target } from './s3-target.ts';
import type { TargetLimits } from './target-calls.ts';

/** Opens the target that `BACKUP_TARGET` names. @throws {OperatorError} when it is not set */
export function openTarget({ target, s3 }: Config['backup'], limits?: TargetLimits): BackupTarget {
  if (!target) {
    const examples = 'a folder (/mnt/backup) or a bucket (s3://bucket/prefix)';
    throw new OperatorError(`BACKUP_TARGET is not set: set it to ${examples}`);
  }
  if (target.kind === 'folder') return folderTarget(target.path, limits);
  const { accessKeyId, secretAccessKey } = s3;
  if (!accessKeyId || !secretAccessKey)
    throw new OperatorError(
      'BACKUP_TARGET is a bucket: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or their _FILE',
    );
  return s3Target({ ...s3, ...target, accessKeyId, secretAccessKey, region: s3.region ?? 'us-east-1' }, limits);
}
