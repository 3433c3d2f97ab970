import type { ConfigAccess } from '../../../control/installation.ts';
import type { Config } from '../../../lib/config/config.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import type { Target } from './target.ts';
import type { TargetLimits } from './target-calls.ts';

/**
 * Opens the target that `BACKUP_TARGET` names. The client of S3 is loaded for a bucket only.
 * @throws {OperatorError} when it is not set, or half a login is
 */
export async function openTarget(
  { target, s3 }: Config['backup'],
  limits?: TargetLimits,
): Promise<Target> {
  if (!target) {
    const examples = 'a folder (/mnt/backup) or a bucket (s3://bucket/prefix)';
    throw new OperatorError(`BACKUP_TARGET is not set: set it to ${examples}`);
  }
  if (target.kind === 'folder') {
    const { FolderTarget } = await import('./folder-target.ts');
    return new FolderTarget(target.path, limits);
  }

  const { accessKeyId, secretAccessKey, sessionToken, region, endpoint } = s3;
  if ((accessKeyId === undefined) !== (secretAccessKey === undefined)) {
    throw new OperatorError(
      'AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are one login: set both of them, or their ' +
        '_FILE, or none',
    );
  }

  const { openS3Target } = await import('./s3-target.ts');
  const login =
    accessKeyId === undefined || secretAccessKey === undefined
      ? undefined
      : { accessKeyId, secretAccessKey, ...(sessionToken !== undefined && { sessionToken }) };

  return openS3Target({ ...target, endpoint, region, login }, limits);
}

/** Opens the target that the settings name. */
export async function openBackupTarget({ config }: ConfigAccess): Promise<Target> {
  return openTarget(config.backup);
}
