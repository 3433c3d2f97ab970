import type { MoveState, MoveStep } from '../../../src/operator/move/move-protocol.ts';
import type { SimulatedDatabase } from './simulated-databases.ts';

/** A move in the simulated control database. */
export interface SimulatedMove {
  state: MoveState;
  epoch: number;
  readonly from: SimulatedDatabase;
  readonly to: SimulatedDatabase;
}

/** The simulated control database: where the tenant is, its fence, its moves, and the lock of the tenant. */
export class SimulatedControl {
  /** The database of the tenant. */
  current: SimulatedDatabase;
  fence: 'none' | 'announced' | 'closed' = 'none';
  /** Differs for each fence. */
  fenceId = 0;
  readonly acknowledged = new Set<string>();
  readonly moves: SimulatedMove[] = [];
  /** The run that holds the lock of the tenant. */
  lockedBy: object | undefined;
  /** Called when the fence or the database of the tenant has changed. */
  onChange = (): void => {};

  constructor(current: SimulatedDatabase) {
    this.current = current;
  }

  announce(): void {
    this.fence = 'announced';
    this.fenceId++;
    this.acknowledged.clear();
    this.onChange();
  }

  lift(): void {
    this.fence = 'none';
    this.acknowledged.clear();
    this.onChange();
  }

  /** @throws when another run has taken over, or the state is another one */
  enter(move: SimulatedMove, epoch: number, { from, to, fence }: Extract<MoveStep, { kind: 'enter' }>): void {
    if (move.epoch !== epoch || move.state !== from) throw new Error('another run has taken over');
    move.state = to;
    if (to === 'switched') this.current = move.to;
    if (fence === 'close') {
      this.fence = 'closed';
      this.acknowledged.clear();
    } else if (fence === 'lift') {
      this.fence = 'none';
    }
    this.onChange();
  }
}
