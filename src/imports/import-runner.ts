import type { TenantTransaction } from '../connections/tenant-transaction.ts';
import type { ControlDatabase } from '../control/database.ts';
import { createLeaseLoop } from '../control/lease-loop.ts';
import { hasCode } from '../errors.ts';
import type { BackgroundTasks } from '../log/background-tasks.ts';
import { nothing, type RowValues, type Statement } from '../postgres/statement.ts';
import { rememberLookups } from '../resources/record.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import { changeInBackground } from '../tenancy/change-in-background.ts';
import type { ContextServices } from '../tenancy/request-context.ts';
import { applyFile, fileError } from './apply-file.ts';
import { createImportQueue, type LeasedImport } from './import-queue.ts';
import {
  beginImport,
  finishImport,
  type ImportCounts,
  lockImport,
  requeueImport,
  type StoredImport,
  settleImport,
} from './import-table.ts';
import { importableResources } from './importable-resources.ts';
import { InterruptedError, requireSenderRights } from './sender-rights.ts';

/** Runs the imports of all tenants that this process leases. */
export type ImportRunner = ReturnType<typeof createImportRunner>;

interface ImportRunnerOptions extends ContextServices {
  control: ControlDatabase;
  background: BackgroundTasks;
  /** Identifies this process. */
  processId: string;
}

/**
 * Maximum imports that run at a time, each of another tenant. More of them wait: each holds a connection and memory.
 */
const maxRunning = 4;
/** An import of a killed process is leased after its lease of 10 s, so it goes on within 15 s. */
const pollMs = 5_000;
/** When an import is tried again that another process is running, or that failed. */
const retryMs = 5_000;

export function createImportRunner(options: ImportRunnerOptions) {
  const { control, background, processId } = options;
  const queue = createImportQueue(control, processId);
  const running = new Set<LeasedImport>();

  const run = async (leased: LeasedImport): Promise<void> => {
    let isEnded = false;
    try {
      isEnded = await runImport(options, leased, () => loop.isStopping);
    } catch (error) {
      // That this process serves no requests of the tenant is no failure of the import.
      if (!hasCode(error, 'migration_pending', 'tenant_inactive')) throw error;
    } finally {
      running.delete(leased);
      await (isEnded ? queue.remove(leased) : queue.postpone(leased, loop.isStopping ? 0 : retryMs));
      loop.wake();
    }
  };
  const lease = async (): Promise<void> => {
    while (!loop.isStopping && running.size < maxRunning) {
      if ([...running].some(({ lostRuns }) => lostRuns > 0)) return; // it runs alone
      const leased = await queue.lease(running.size);
      if (!leased) return;
      running.add(leased);
      if (background.run('import', () => run(leased))) continue;
      running.delete(leased);
      await queue.postpone(leased, retryMs);
      return;
    }
  };
  const loop = createLeaseLoop({ lease, renew: queue.renew, pollMs });
  return {
    queue,
    start: loop.start,
    wake: loop.wake,
    /** Leases no more imports. The running ones stop at their next batch of rows; another process runs them again. */
    stop: loop.stop,
    /** Runs an import that has not ended, also if the queue lacks it. Returns at once. */
    resume: (tenantId: number, importId: number): void => {
      background.run('import', async () => {
        if (await queue.restore(tenantId, importId)) loop.wake();
      });
    },
  };
}

/** An import in which the database failed so often is rejected. */
const maxAttempts = 5;
/** An import is rejected when so many processes have ended while they ran it; in the last one, it ran alone. */
const maxLostRuns = 2;

/**
 * Runs an import in one transaction, with its result: a process that is killed leaves nothing of it but the file, and
 * the next call runs it again. If another process is running an import of the tenant, nothing happens.
 * @param isStopping true when this process shall end: the import stops before its next batch of rows
 * @returns true when the import has ended, or does not exist
 * @throws when the database cannot be used
 */
async function runImport(services: ContextServices, leased: LeasedImport, isStopping: () => boolean): Promise<boolean> {
  const { directory } = services;
  const { tenantGuid, importId } = leased;
  const tenant = await directory.tenant(tenantGuid);
  if (importId === null) return true;
  if (tenant?.status !== 'active') return false;
  const [begun] = await changeInBackground(services, tenant, '{}', async () => beginImport(importId));
  if (!begun) {
    const unfinished = await changeInBackground(services, tenant, '{}', async () => settleImport(importId));
    return unfinished.length === 0;
  }

  const stored = begun as unknown as StoredImport;
  const resource = importableResources.get(stored.resource);
  const requireRights = async (): Promise<void> => {
    if (isStopping()) throw new InterruptedError('the process stops');
    if (resource) await requireSenderRights(directory, tenant, stored, resource);
  };
  const cachedResource = resource?.isCached && !stored.dryRun ? resource.name : undefined;
  let isEnded = false;
  const apply = async (transaction: TenantTransaction): Promise<Statement> => {
    const [locked] = await transaction.query(lockImport(stored.id));
    if (!locked) return nothing;
    const result =
      leased.lostRuns < maxLostRuns
        ? await applyImport(transaction, stored, resource, requireRights)
        : rejectImport(
            stored.id,
            'the service ended twice while it ran the import; divide the file and send the parts',
          );
    isEnded = result !== undefined;
    return result ?? requeueImport(stored.id);
  };
  await changeInBackground(services, tenant, stored.actor, apply, cachedResource);
  return isEnded;
}

const command = (text: string): Statement => ({ name: text.replaceAll(' ', '_'), text, values: [] });

const noCounts = (): ImportCounts => ({ rows: 0, created: 0, updated: 0, unchanged: 0, refused: 0, errors: [] });
const rejectImport = (id: number, reason: string): Statement =>
  finishImport(id, 'rejected', { ...noCounts(), errors: [fileError('internal_error', reason)] });

/**
 * Applies the file of an import in the transaction.
 * @returns the statement that stores the result; undefined when the import was interrupted, and nothing is left of it
 */
async function applyImport(
  transaction: TenantTransaction,
  stored: StoredImport,
  resource: ResourceDefinition | undefined,
  requireRights: () => Promise<void>,
): Promise<Statement | undefined> {
  const counts = noCounts();
  if (!resource || stored.attempts > maxAttempts)
    return rejectImport(stored.id, 'the service could not run the import');
  const undo = (): Promise<RowValues[]> => transaction.query(command('rollback to savepoint import'));
  await transaction.query(command('savepoint import'));
  rememberLookups(transaction.em);
  try {
    const isApplied = await applyFile({ transaction, order: stored, resource, counts, requireRights });
    const isRejected = !isApplied || (stored.atomic && counts.refused > 0);
    if (isRejected || stored.dryRun) await undo();
    if (isRejected) Object.assign(counts, { created: 0, updated: 0 });
    return finishImport(stored.id, isRejected ? 'rejected' : 'done', counts);
  } catch (error) {
    if (!(error instanceof InterruptedError)) throw error;
    await undo();
    return undefined;
  }
}
