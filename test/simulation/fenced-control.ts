/** The simulated control database, as processes of the service know it: where the tenant is, and its fence. */
export class FencedControl<Database> {
  /** The database of the tenant. */
  current: Database;
  fence: 'none' | 'announced' | 'closed' = 'none';
  /** Differs for each fence. */
  fenceId = 0;
  /** The processes that have confirmed the fence, as it is now. */
  readonly acknowledged = new Set<string>();
  /** True while it cannot be reached. */
  isAway = false;
  /** Called when the fence or the database of the tenant has changed. */
  onChange = (): void => {};

  constructor(current: Database) {
    this.current = current;
  }

  /** Returns whether all processes that are heard have confirmed the fence. */
  isConfirmedBy(processes: readonly { name: string; isHeard: boolean }[]): boolean {
    return processes.every(({ name, isHeard }) => !isHeard || this.acknowledged.has(name));
  }

  announce(): void {
    this.fence = 'announced';
    this.fenceId++;
    this.acknowledged.clear();
    this.onChange();
  }

  close(): void {
    this.fence = 'closed';
    this.acknowledged.clear();
    this.onChange();
  }

  lift(): void {
    this.fence = 'none';
    this.acknowledged.clear();
    this.onChange();
  }
}
