import type { MoveState, MoveStep } from '../../../src/operator/move/move-protocol.ts';
import { FencedControl } from '../fenced-control.ts';
import type { SimulatedDatabase } from './simulated-databases.ts';

/** A move in the simulated control database. */
export interface SimulatedMove {
  state: MoveState;
  epoch: number;
  readonly from: SimulatedDatabase;
  readonly to: SimulatedDatabase;
}

/** The simulated control database, with the moves of the tenant and its lock. */
export class SimulatedControl extends FencedControl<SimulatedDatabase> {
  readonly moves: SimulatedMove[] = [];
  /** The run that holds the lock of the tenant. */
  lockedBy: object | undefined;

  /** @throws when another run has taken over, or the state is another one */
  enter(move: SimulatedMove, epoch: number, { from, to, fence }: Extract<MoveStep, { kind: 'enter' }>): void {
    if (move.epoch !== epoch || move.state !== from) throw new Error('another run has taken over');
    move.state = to;
    if (to === 'verified') this.current = move.to;
    if (fence === 'close') this.close();
    else if (fence === 'lift') this.lift();
    else this.onChange();
  }
}
