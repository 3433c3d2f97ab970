import { OperatorError } from '../../operator-error.ts';
import { lockSpaces, tryLock } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { type Queryable, shareConnection } from '../../postgres/shared-connection.ts';

const leases = {
  archives: { key: 0, noun: 'backup run' },
  drill: { key: 1, noun: 'drill' },
  retention: { key: 2, noun: 'removal of old rows' },
} as const;

/**
 * Runs `work` while no other process has the same lease. The lease ends with the connection, also when this process is
 * killed. `work` writes the ledger on that connection, so a process that has lost its lease cannot go on.
 * @param lease `archives`: files are written or removed, or data keys are sealed again; `drill`: scratch databases are
 *   made; `retention`: old rows are removed from tenants
 * @throws {OperatorError} when another process has the lease
 */
export function withBackupLease<T>(
  controlUrl: string,
  lease: keyof typeof leases,
  work: (control: Queryable) => Promise<T>,
): Promise<T> {
  return withConnection(controlUrl, async client => {
    const { key, noun } = leases[lease];
    if (!(await tryLock(client, lockSpaces.backup, key)))
      throw new OperatorError(`Another ${noun} is in progress: nothing was changed. Wait until it has ended`);
    return work(shareConnection(client));
  });
}
