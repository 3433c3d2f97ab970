/** A state of the control database that can be restored. */
export interface ControlSource {
  /** The file of the archive, or the recovered server. */
  readonly description: string;
  /** The time of the state. */
  readonly at: Date;
  /** Writes the state into an empty database, with the schema that it has. */
  load(url: string): Promise<void>;
}
