import { OperatorError } from '../../log/operator-error.ts';
import { lockSpaces, tryLock } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { type Queryable, shareConnection } from '../../postgres/shared-connection.ts';

const locks = {
  archives: { key: 0, noun: 'backup run' },
  drill: { key: 1, noun: 'drill' },
  retention: { key: 2, noun: 'removal of old rows' },
} as const;

/**
 * Runs `work` while no other process has the same lock. The lock ends with the connection, also when this process is
 * killed. `work` writes the ledger on that connection, so a process that has lost its lock cannot go on.
 * @param lock `archives`: files are written or removed; `drill`: scratch databases are made; `retention`: old rows are
 *   removed from tenants
 * @throws {OperatorError} when another process has the lock
 */
export function withBackupLock<T>(
  controlUrl: string,
  lock: keyof typeof locks,
  work: (control: Queryable) => Promise<T>,
): Promise<T> {
  return withConnection(controlUrl, async client => {
    const { key, noun } = locks[lock];
    if (!(await tryLock(client, lockSpaces.backup, key)))
      throw new OperatorError(`Another ${noun} is in progress: nothing was changed. Wait until it has ended`);
    return work(shareConnection(client));
  });
}
