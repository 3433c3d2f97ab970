import { isMasterKeyRight } from '../control/master-key-canary.ts';
import type { Installation } from '../installation.ts';
import { OperatorError } from '../operator-error.ts';

/** @throws {OperatorError} when the secrets of the control database were sealed under another master key */
export async function requireMasterKey({ control, secrets }: Installation): Promise<void> {
  if (await isMasterKeyRight(control, secrets)) return;
  throw new OperatorError(
    'MASTER_KEY is not the master key of this control database: set the key that its secrets were encrypted with ' +
      '(while the key is being changed, MASTER_KEY_PREVIOUS may hold it)',
  );
}
