/** A fault that is planted in a copy of the source code. The simulation must find it. */
export interface Mutant {
  readonly name: string;
  readonly file: string;
  readonly text: string;
  readonly replacement: string;
  /** A seed that finds it. After a change of the simulation, others do. */
  readonly seed: number;
}
