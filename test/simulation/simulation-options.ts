/** The options with which every part of the simulation is run. */
export interface SimulationOptions {
  seed: number;
  /** Collects every step as text. */
  trace?: string[];
}
