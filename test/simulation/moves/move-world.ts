import type { ServingProcess, ServingWorld } from '../serving-process.ts';
import type { SimulatedDatabase } from './simulated-databases.ts';
import type { SimulatedControl } from './simulated-moves.ts';

/** What the simulated runs and processes share. */
export interface MoveWorld extends ServingWorld<SimulatedDatabase> {
  readonly control: SimulatedControl;
  readonly processes: readonly ServingProcess<SimulatedDatabase>[];
  isCalm: boolean;
  epochs: number;
}
