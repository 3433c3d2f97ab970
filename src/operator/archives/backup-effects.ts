import { randomUUID } from 'node:crypto';
import type { Retention } from '../../config/config-values.ts';
import type { Installation } from '../../installation.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { fleetTasks } from '../command/fleet-tasks.ts';
import { type FleetObservers, runConcurrently } from '../command/run-fleet.ts';
import { errorText } from '../command/texts.ts';
import { withTenantUnchanged } from '../databases/with-tenant.ts';
import { archiveControl } from './archive-control.ts';
import { archiveDatabase } from './archive-database.ts';
import { archiveFile } from './archive-name.ts';
import { type BackupCandidate, findCandidates } from './backup-candidates.ts';
import type { BackupEffects } from './backup-protocol.ts';
import { createKeyring, createMissingKeys, type DataKey, readKeys } from './data-keys.ts';
import {
  completeArchive,
  forgetArchive,
  type LedgerEntry,
  markUnchanged,
  type PlannedArchive,
  planArchives,
  readNewest,
} from './ledger.ts';
import { pruneArchives, removeLeftovers } from './prune.ts';
import { storeKeys } from './target-keys.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/** What a backup run is to archive. */
export interface BackupRequest {
  /** Only these tenants; undefined: all. */
  readonly slugs?: readonly string[] | undefined;
  /** Databases that are archived at the same time. */
  readonly concurrency: number;
  readonly keep: Retention;
}

/** The result of a run for one database. */
export interface BackupOutcome {
  /** The tenant; null for the control database. */
  slug: string | null;
  state: 'archived' | 'unchanged' | 'failed';
  file: string | null;
  rows: number;
  bytes: number;
  ms: number;
  error: string | null;
}

interface Run extends Pick<FleetObservers<BackupOutcome>, 'onStart' | 'signal'> {
  readonly installation: Installation;
  readonly control: Queryable;
  readonly target: BackupTarget;
  readonly request: BackupRequest;
  readonly report: (outcome: BackupOutcome) => void;
}

/** An archive that is recorded. */
interface Planned {
  readonly candidate: BackupCandidate;
  readonly entry: PlannedArchive;
  readonly key: DataKey;
  startedAt: number;
}

type Written = Parameters<typeof completeArchive>[2];

/** The effects of a backup run on PostgreSQL and the target. */
export function createBackupEffects(run: Run): BackupEffects<BackupCandidate, Planned, Written, LedgerEntry> {
  const { installation, control, target, request, signal, onStart, report } = run;
  return {
    removeLeftovers: () => removeLeftovers(control, target),
    poll: async () => {
      const candidates = await findCandidates(installation, control, request.slugs);
      onStart?.(candidates.length + 1); // the control database is one, too
      return candidates;
    },
    storeKeys: async () => {
      await createMissingKeys(control, installation.secrets);
      await storeKeys(control, target, installation.secrets);
    },
    readNewest: () => readNewest(control, target.description),
    markUnchanged: async unchanged => {
      for (const { archive, subject } of unchanged)
        report({ slug: subject.slug, state: 'unchanged', file: archive.file, rows: 0, bytes: 0, ms: 0, error: null });
      if (unchanged.length === 0) return;
      await markUnchanged(
        control,
        unchanged.map(({ archive }) => archive.id),
      );
    },
    plan: changed => plan(run, changed),
    forEach: async (planned, work) => void (await runConcurrently(planned, fleetTasks(request.concurrency), work)),
    whileStable: async (planned, work) => {
      planned.startedAt = performance.now();
      if (signal?.aborted) throw new Error('the run was interrupted before this tenant');
      if (planned.candidate.fault) throw new Error(planned.candidate.fault);
      await withTenantUnchanged(control, planned.candidate.tenantId, work);
    },
    write: ({ candidate, entry: { id, file }, key }) => archiveDatabase(candidate.source, { id, file, key }, target),
    complete: async ({ candidate: { slug }, entry: { id, file }, startedAt }, written) => {
      await completeArchive(control, id, written);
      const { rows, bytes } = written;
      const ms = Math.round(performance.now() - startedAt);
      report({ slug, state: 'archived', file, rows, bytes, ms, error: null });
    },
    abandon: async ({ candidate: { slug }, entry: { id, file }, startedAt }, error) => {
      const isRemoved = await target.remove(file).then(
        () => true,
        () => false, // the ledger keeps the archive, so that the next run removes its file
      );
      if (isRemoved) await forgetArchive(control, id);
      const ms = Math.round(performance.now() - startedAt);
      report({ slug, state: 'failed', file: null, rows: 0, bytes: 0, ms, error: errorText(error) });
    },
    archiveControl: () => archiveControlDatabase(run),
    prune: () => pruneArchives(control, target, request.keep),
  };
}

async function plan({ installation, control, target }: Run, changed: readonly BackupCandidate[]): Promise<Planned[]> {
  const keys = await readKeys(control);
  const keyring = createKeyring(keys, installation.secrets);
  const now = new Date();
  const owners = new Set(keys.map(({ tenant }) => tenant));
  // A tenant that was purged meanwhile has no key.
  const present = changed.filter(({ tenant }) => owners.has(tenant));
  const planned = present.map((candidate): Planned => {
    const { tenant, slug, source, counters } = candidate;
    const id = randomUUID();
    const key = keyring.current(tenant);
    const entry = {
      ...{ id, tenant, slug, target: target.description, file: archiveFile(tenant, id, now) },
      ...{ keyFingerprint: key.fingerprint, server: source.server, database: source.database },
      proof: counters?.fingerprint ?? null,
    };
    return { candidate, entry, key, startedAt: performance.now() };
  });
  await planArchives(
    control,
    planned.map(({ entry }) => entry),
  );
  return planned;
}

async function archiveControlDatabase({ installation, control, target, report }: Run): Promise<void> {
  const startedAt = performance.now();
  const ms = () => Math.round(performance.now() - startedAt);
  const result = { slug: null, file: null, rows: 0, bytes: 0, error: null };
  await archiveControl(installation, control, target).then(
    written => report({ ...result, ...written, state: 'archived', ms: ms() }),
    error => report({ ...result, state: 'failed', ms: ms(), error: errorText(error) }),
  );
}
