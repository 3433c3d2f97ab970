import { checkMasterKey } from '../../control/master-key-canary.ts';
import type { SecretBox } from '../../control/secret-box.ts';
import { OperatorError } from '../../log/operator-error.ts';
import type { Statements } from '../../postgres/statements.ts';

/**
 * @throws {OperatorError} when `MASTER_KEY` is none of the keys of the control database, or when the key that sealed
 *   its secrets is missing
 */
export async function requireMasterKey(control: Statements, secrets: SecretBox): Promise<void> {
  const state = await checkMasterKey(control, secrets);
  if (state === 'right') return;
  throw new OperatorError(
    state === 'wrong'
      ? 'MASTER_KEY is not the master key of this control database: set the key that its secrets were encrypted with ' +
          '(a new key is registered first, by npx backoffice control register-key)'
      : 'MASTER_KEY is the next master key of this control database, whose secrets are still encrypted with the former ' +
          'one: set MASTER_KEY_PREVIOUS to the former key until npx backoffice control reseal has run',
  );
}
