import type { ConfigAccess } from '../../control/installation.ts';
import type { FilledForm } from './command-line.ts';
import { formValues } from './form-values.ts';

/** Says where a command that opens archives is run, on a host that opens none. */
export const recoveryHostText =
  'This host opens no archive (BACKUP_IDENTITY_FILE is not set here): copy the command below ' +
  'to the recovery host';

/**
 * Returns whether a form opens archives, and this host has no identity. It has a plan all the
 * same, if its operation has one: a plan opens no archive.
 */
export function needsRecoveryHost(
  { operation, texts }: FilledForm,
  { config }: ConfigAccess,
): boolean {
  const { opensArchives } = operation.handling;
  if (!opensArchives || config.backup.identityFile !== undefined) return false;

  return opensArchives(formValues({ operation, texts }));
}
