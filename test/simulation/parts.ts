import { backupMutants } from './backups/backup-mutants.ts';
import { responseMutants, sessionMutants } from './caches/cache-mutants.ts';
import { lostMutants } from './lost-restores/lost-mutants.ts';
import { moveMutants } from './moves/move-mutants.ts';
import { type Mutant, mutants } from './mutants.ts';
import { restoreMutants } from './restores/restore-mutants.ts';
import type { SimulationOptions } from './simulation-options.ts';

/** A part of the service that is simulated. */
export interface Part {
  readonly name: PartName;
  /** Loads its simulation, which throws a `Violation` when a run breaks an invariant. */
  readonly load: () => Promise<(options: SimulationOptions) => void | Promise<void>>;
  readonly mutants: readonly Mutant[];
  /** The folders of the source code that the simulation needs. */
  readonly folders: readonly string[];
}

export type PartName = 'budget' | 'response-cache' | 'sessions' | 'moves' | 'backups' | 'restores' | 'lost-restores';

export const parts: Readonly<Record<PartName, Part>> = {
  budget: {
    name: 'budget',
    load: async () => (await import('./budget-simulation.ts')).simulateBudget,
    mutants,
    folders: ['src/budget', 'test/simulation'],
  },
  'response-cache': {
    name: 'response-cache',
    load: async () => {
      const { simulateCaches } = await import('./caches/cache-simulation.ts');
      return options => simulateCaches('responses', options);
    },
    mutants: responseMutants,
    folders: ['src', 'test/simulation'],
  },
  sessions: {
    name: 'sessions',
    load: async () => {
      const { simulateCaches } = await import('./caches/cache-simulation.ts');
      return options => simulateCaches('sessions', options);
    },
    mutants: sessionMutants,
    folders: ['src', 'test/simulation'],
  },
  moves: {
    name: 'moves',
    load: async () => (await import('./moves/move-simulation.ts')).simulateMoves,
    mutants: moveMutants,
    folders: ['src/operator/move', 'test/simulation'],
  },
  backups: {
    name: 'backups',
    load: async () => (await import('./backups/backup-simulation.ts')).simulateBackups,
    mutants: backupMutants,
    folders: ['src', 'test/simulation'],
  },
  restores: {
    name: 'restores',
    load: async () => (await import('./restores/restore-simulation.ts')).simulateRestores,
    mutants: restoreMutants,
    folders: ['src/operator/restore', 'test/simulation'],
  },
  'lost-restores': {
    name: 'lost-restores',
    load: async () => (await import('./lost-restores/lost-simulation.ts')).simulateLostRestores,
    mutants: lostMutants,
    folders: ['src/operator/restore', 'test/simulation'],
  },
};
