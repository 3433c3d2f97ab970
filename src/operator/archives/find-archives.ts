import { OperatorError } from '../../log/operator-error.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { type LedgerEntry, readLedger } from './ledger.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/**
 * Returns the complete archives of a target, the newest first.
 * @param slug only those of one tenant, by its guid; undefined: all, those of the control database included
 * @throws {OperatorError} when there is no such tenant
 */
export async function findArchives(
  control: Queryable,
  target: BackupTarget,
  slug: string | undefined,
): Promise<LedgerEntry[]> {
  const complete = (await readLedger(control, target.description)).filter(({ state }) => state === 'complete');
  if (slug === undefined) return complete;
  const { rows } = await control.query<{ guid: string }>('select guid from tenants where slug = $1', [slug]);
  const guid = rows[0]?.guid;
  if (!guid) throw new OperatorError(`there is no tenant ${slug}`);
  return complete.filter(({ tenant }) => tenant === guid);
}
