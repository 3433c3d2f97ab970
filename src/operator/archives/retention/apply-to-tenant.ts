import type pg from 'pg';
import { withConnection } from '../../../postgres/connection.ts';
import { withTenantUnchanged } from '../../databases/with-tenant.ts';
import { canonicalTextSettings } from '../../schema/table-checksums.ts';
import { readHistoryFacts } from './history-facts.ts';
import { endRemoval, recordNothingToRemove } from './removal-records.ts';
import { removeArchived } from './remove-archived.ts';
import type { RetentionCandidate } from './retention-candidates.ts';
import type { RemovedRows, RetentionRun } from './retention-run.ts';

/**
 * Applies the retention of one tenant, under a lock with which no migration, move or purge changes its database.
 * @param onRemoved receives each kind as soon as its rows are removed
 * @throws {OperatorError} that says why nothing (more) is removed
 */
export async function applyToTenant(
  run: RetentionRun,
  candidate: RetentionCandidate,
  onRemoved: (removed: RemovedRows) => void,
): Promise<void> {
  await withTenantUnchanged(run.control, candidate.tenantId, async () => {
    if (!run.dryRun)
      for (const id of candidate.outdated)
        await endRemoval(run.control, id, 'the retention or the database was changed before the end');
    const work = (client: pg.Client) => removeDue(run, candidate, client, onRemoved);
    if (candidate.due.length > 0) await withConnection(candidate.url, work, { settings: canonicalTextSettings });
  });
}

async function removeDue(
  run: RetentionRun,
  candidate: RetentionCandidate,
  client: pg.Client,
  onRemoved: (removed: RemovedRows) => void,
): Promise<void> {
  const { guid, tenantId, database, due } = candidate;
  const { kinds, schemaVersion } = await readHistoryFacts(client, candidate);
  if (!run.dryRun)
    for (const { kind, cutoff } of due.filter(removal => !kinds.has(removal.kind)))
      await recordNothingToRemove(run.control, { tenantId, database, kind, cutoff, requestedBy: run.requestedBy });
  const newest = run.archives.find(({ tenant }) => tenant === guid)?.id;
  const needed = due.filter(({ kind }) => kinds.has(kind));
  for (const [archive, removals] of Map.groupBy(needed, ({ unfinished }) => unfinished?.archive ?? newest))
    await removeArchived(run, candidate, client, { archive, removals, schemaVersion, onRemoved });
}
