import type { BackupEffects, BackupSubject, NewestArchive } from '../../../src/operator/archives/backup-protocol.ts';
import { archivesToKeep } from '../../../src/operator/archives/prune.ts';
import type { SimulatedDatabase } from './simulated-database.ts';

/** An entry of the ledger. */
export interface Entry extends NewestArchive {
  readonly tenant: string;
  fault: string | null;
  state: 'writing' | 'complete' | 'removing';
  snapshotAt: Date;
  provedAt: null;
}

/** The control database and the target, which outlive a killed run. */
export interface BackupWorld {
  readonly databases: readonly SimulatedDatabase[];
  readonly ledger: Map<string, Entry>;
  /** The complete files of the target: how many changes an archive has. */
  readonly files: Map<string, number>;
  /** The tenants whose keys are in the keyring of the target. */
  readonly keyring: Set<string>;
  /** The ledgers that archives of the control database have: ids of complete archives. */
  readonly controlArchives: ReadonlySet<string>[];
  /** Counts up. */
  clock: number;
  fail(problem: string): void;
}

interface Subject extends BackupSubject {
  readonly database: SimulatedDatabase;
  /** The changes that were visible when the poll began. */
  readonly visible: number;
}

interface Planned {
  readonly id: string;
  readonly database: SimulatedDatabase;
}

/**
 * The effects of a run on a simulated installation.
 * @param step resolves when the run may go on; a killed run waits for ever
 */
export function simulatedEffects(
  world: BackupWorld,
  step: () => Promise<void>,
): BackupEffects<Subject, Planned, { changes: number; at: Date }, Entry> {
  const { databases, ledger, files, keyring } = world;
  const remove = async (id: string): Promise<void> => {
    await step();
    files.delete(id);
    await step();
    ledger.delete(id);
  };
  return {
    removeLeftovers: async () => {
      for (const [id, { state }] of ledger) if (state !== 'complete') await remove(id);
    },
    poll: async () => {
      await step();
      // One statement reads the connections of all databases, and then the counters of each.
      const found = databases.map(database => ({ database, visible: database.committed, isUsed: database.isUsed }));
      await step();
      return found.map(({ database, visible, isUsed }) => {
        return { tenant: database.tenant, database, visible, counters: database.counters(isUsed) };
      });
    },
    storeKeys: async () => {
      await step();
      for (const { tenant } of databases) keyring.add(tenant);
    },
    readNewest: async () => {
      await step();
      const complete = [...ledger.values()].filter(({ state }) => state === 'complete');
      return new Map(complete.sort(byTime).map(entry => [entry.tenant, entry]));
    },
    markUnchanged: async unchanged => {
      for (const { subject, archive } of unchanged)
        if (files.get(archive.id) !== subject.visible)
          world.fail(`${subject.tenant} was proved unchanged, and its archive has not all that was visible`);
      await step();
    },
    plan: async changed => {
      await step();
      return changed.map(({ tenant, database, counters }) => {
        const id = `${tenant}-${ledger.size}-${world.clock++}`;
        const proof = counters?.fingerprint ?? null;
        const at = new Date(world.clock);
        ledger.set(id, { id, tenant, proof, fault: null, state: 'writing', snapshotAt: at, provedAt: null });
        return { id, database };
      });
    },
    forEach: async (planned, work) => void (await Promise.all(planned.map(work))),
    whileStable: (_, work) => work(),
    write: async ({ id, database }) => {
      await step();
      const snapshot = { changes: database.committed, at: new Date(world.clock++) };
      await step();
      if (world.clock % 11 === 0) throw new Error('the target cannot be reached');
      if (ledger.get(id)?.state !== 'writing') world.fail(`file ${id} is not recorded as unfinished`);
      if (!keyring.has(database.tenant)) world.fail(`file ${id} is in the target, and its key is not`);
      files.set(id, snapshot.changes);
      return snapshot;
    },
    complete: async ({ id }, { at }) => {
      await step();
      const entry = ledger.get(id);
      if (!entry || !files.has(id)) return world.fail(`archive ${id} is complete without a file`);
      entry.state = 'complete';
      entry.snapshotAt = at;
    },
    abandon: ({ id }) => remove(id),
    archiveControl: async () => {
      await step();
      const complete = [...ledger.values()].filter(({ state }) => state === 'complete');
      world.controlArchives.push(new Set(complete.map(({ id }) => id)));
    },
    prune: async () => {
      const complete = [...ledger.values()].filter(({ state }) => state === 'complete');
      const keep = { allMs: 0, hours: 0, days: 0, weeks: 0, months: 1 };
      const removable = [...Map.groupBy(complete, ({ tenant }) => tenant).values()].flatMap(entries => {
        const kept = archivesToKeep(entries, keep);
        return entries.filter(entry => !kept.has(entry));
      });
      await step();
      for (const entry of removable) entry.state = 'removing';
      for (const { id } of removable) await remove(id);
      return removable.length;
    },
  };
}

/** The oldest first. */
export function byTime(a: Entry, b: Entry): number {
  return a.snapshotAt.getTime() - b.snapshotAt.getTime();
}
