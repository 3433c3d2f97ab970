/** What every part of the simulation is run with. */
export interface SimulationOptions {
  seed: number;
  /** Collects every step as text. */
  trace?: string[];
}
