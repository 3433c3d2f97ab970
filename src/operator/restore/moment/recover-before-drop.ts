import { OperatorError } from '../../../operator-error.ts';
import type { ScratchServer } from './scratch-server.ts';
import type { RecoveryTarget } from './scratch-settings.ts';

/** So many transactions before that of the drop are tried: others may have begun before it and not written anything. */
const maxAttempts = 10;

/**
 * Recovers a database that was dropped after the moment, while no other transaction was committed in between. A recovery
 * to a time ends before the commit of the drop, but PostgreSQL removes the files before that commit. A recovery to a
 * transaction ends right after it: so this one ends after the last transaction that the first one has completed.
 *
 *   1. The log of the first recovery names the transaction of the drop, before which it ended, and the time of the last
 *      completed one.
 *   2. A recovery that ends after a transaction, and reports the same time, has completed the same ones.
 *
 * @param log of the first recovery
 * @throws {OperatorError} when the last completed transaction is not found
 */
export async function recoverBeforeDrop<T>(
  log: string,
  recover: (until: RecoveryTarget, use: (recovered: ScratchServer) => Promise<T | undefined>) => Promise<T | undefined>,
  use: (recovered: ScratchServer) => Promise<T>,
): Promise<T> {
  const drop = Number(/recovery stopping before commit of transaction (\d+)/.exec(log)?.[1]);
  const last = lastCompleted(log);
  for (let transaction = drop - 1; last && transaction >= drop - maxAttempts; transaction--) {
    let isSame = false;
    const result = await recover({ transaction }, async recovered => {
      isSame = lastCompleted(await recovered.log()) === last;
      return isSame ? use(recovered) : undefined;
    }).catch(error => {
      if (isSame) throw error;
      return undefined; // the number was given to no transaction that was committed
    });
    if (isSame) return result as T;
  }
  throw new OperatorError(
    'The database was dropped right after that moment. Restore to a moment before its last change, or from an archive',
  );
}

function lastCompleted(log: string): string | undefined {
  return /last completed transaction was at log time (.*)/.exec(log)?.[1];
}
