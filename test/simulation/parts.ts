import { databaseMutants } from './databases/database-mutants.ts';
import type { Mutant } from './mutant.ts';
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

export type PartName = 'databases';

export const parts: Readonly<Record<PartName, Part>> = {
  databases: {
    name: 'databases',
    load: async () => (await import('./databases/database-simulation.ts')).simulateDatabases,
    mutants: databaseMutants,
    folders: ['src/operator/databases', 'test/simulation'],
  },
};
