/**
 * The states of a move. `copying` is the last one in which the tenant is served from the old database as always. From
 * `verified` on the tenant has the new database, and from `switched` on it is served from it. A move ends `settled` or
 * `aborted`.
 */
export type MoveState =
  | 'planned'
  | 'prepared'
  | 'copying'
  | 'fenced'
  | 'verified'
  | 'switched'
  | 'settling'
  | 'settled'
  | 'aborting'
  | 'aborted';

/** What a run begins with. */
export interface MoveView {
  readonly state: MoveState;
  /** True if the tenant has a fence: announced, or closed. */
  readonly hasFence: boolean;
}

/**
 * What a run is to achieve: `switch` the tenant to the new database; `settle` it, which drops the old one; `retreat` to
 * the database that the tenant has, and from the old one another attempt is possible; `abort`, which also drops the new
 * one, unless the tenant has it.
 */
export type MoveGoal = 'switch' | 'settle' | 'retreat' | 'abort';

/** One step. Each is atomic, or can be repeated, and has no effect for a run that another run has replaced. */
export type MoveStep =
  /**
   * Records another state, in one transaction of the control database, unless another run has replaced this one. With
   * `verified`, the tenant has the new database.
   */
  | { readonly kind: 'enter'; readonly from: MoveState; readonly to: MoveState; readonly fence?: 'close' | 'lift' }
  /** Shuts earlier runs out of the databases. */
  | { readonly kind: 'claim source' | 'claim target' }
  | { readonly kind: 'create target' | 'drop target' | 'drop source' }
  /** Lets every process prepare for the fence. Fails when one does not confirm. */
  | { readonly kind: 'announce fence' }
  | { readonly kind: 'lift fence' }
  /** Copies everything while the tenant is served. Fails when the pause would be too long. */
  | { readonly kind: 'copy' }
  /** Waits until no process uses the old database, or a maximum time has passed. */
  | { readonly kind: 'wait for processes' }
  /** From its commit on, no login of the tenant begins that could use the old database. */
  | { readonly kind: 'close source' }
  | { readonly kind: 'end sessions' }
  /** Copies what has changed since `copy`, and compares the two databases. */
  | { readonly kind: 'copy changes' }
  | { readonly kind: 'open target' | 'reopen source' };

/**
 * Returns the steps of one run of a move, one after the other. It does nothing itself: its caller takes each step
 * before it asks for the next, and stops when one fails. A run that fails, or is killed, at any point leaves a state
 * from which another run goes on. Only one run at a time holds the lock of the tenant; one that has lost it without
 * noticing is shut out by its number (`epoch`).
 *
 * I1 (runs) Once a run has recorded its epoch in the control database and in a database, no run with a smaller epoch
 *     changes that. Each step changes one of them, in a transaction that compares the epoch.
 * I2 (one side) At most one of the two databases lets logins of the tenant write.
 *     1. The target is opened only in state `verified`. Only the run that closed the source records that state, after
 *        the sessions of the tenant's login had ended there. A run that was replaced before it could, never opens it.
 *     2. From `verified` every run goes on to `switched`, and the source is never opened again: a run that reopens it has
 *        found an earlier state. Its epoch is either smaller than that of the run that recorded `verified`, which had
 *        claimed the source before it closed it; or greater, and then `verified` could not be recorded (I1).
 *     3. Another run that finds `fenced` does not know whether the source has stayed closed. So it retreats, and copies
 *        again.
 * I3 (nothing lost) What the target contains at `verified` is what the source contained when the last session of the
 *     tenant had ended there: `copy changes` follows `end sessions`, and fails unless the contents are equal. A run
 *     claims the target before it copies, so no earlier one changes that (I1).
 * I4 (no drop in use) The source is dropped only after `settling` is recorded, which follows `switched`; the target
 *     only after `aborting`, from which no state leads to `verified`. The names of both are never used again.
 * I5 (one server) A run that retreats needs only the server that the tenant has. Before `verified` it changes the
 *     source alone: the target was never opened (I2), so it has nothing to forget, and what it contains is replaced by
 *     the next run that claims it. From `verified` it changes the target alone.
 */
export function* moveProtocol({ state, hasFence }: MoveView, goal: MoveGoal): Generator<MoveStep, MoveState, void> {
  let at = state;
  let fenced = hasFence;
  let closedByThisRun = false;
  const enter = (to: MoveState, fence?: 'close' | 'lift'): MoveStep => {
    const step: MoveStep = { kind: 'enter', from: at, to, ...(fence && { fence }) };
    at = to;
    if (fence) fenced = fence === 'close';
    return step;
  };
  function* reopen(): Generator<MoveStep, void, void> {
    yield { kind: 'reopen source' };
    yield { kind: 'lift fence' };
  }
  const isGivingUp = goal === 'retreat' || goal === 'abort';

  if (isAtEnd(at) || (at === 'switched' && goal !== 'settle')) return at;
  if (usesSource(at) || (at === 'aborting' && fenced)) yield { kind: 'claim source' };
  for (;;) {
    switch (at) {
      case 'planned':
        if (goal === 'retreat') return at;
        if (goal === 'abort') {
          yield enter('aborting');
          break;
        }
        yield { kind: 'create target' };
        yield enter('prepared');
        break;
      case 'prepared':
      case 'copying':
        if (fenced) {
          yield* reopen();
          fenced = false;
        }
        if (goal === 'retreat') return at;
        if (goal === 'abort') {
          yield enter('aborting');
          break;
        }
        yield { kind: 'claim target' };
        if (at === 'prepared') yield enter('copying');
        yield { kind: 'announce fence' };
        yield { kind: 'copy' };
        yield enter('fenced', 'close');
        closedByThisRun = true;
        break;
      case 'fenced':
        if (isGivingUp || !closedByThisRun) {
          yield enter('copying');
          break;
        }
        yield { kind: 'wait for processes' };
        yield { kind: 'close source' };
        yield { kind: 'end sessions' };
        yield { kind: 'copy changes' };
        yield enter('verified');
        break;
      case 'verified':
        if (!closedByThisRun) yield { kind: 'claim target' };
        yield { kind: 'open target' };
        yield enter('switched', 'lift');
        break;
      case 'switched':
        if (goal !== 'settle') return at;
        yield enter('settling');
        break;
      case 'settling':
        if (goal === 'retreat') return at;
        yield { kind: 'drop source' };
        yield enter('settled');
        break;
      case 'aborting':
        if (fenced) {
          yield* reopen();
          fenced = false;
        }
        if (goal === 'retreat') return at;
        yield { kind: 'drop target' };
        yield enter('aborted');
        break;
      case 'settled':
      case 'aborted':
        return at;
    }
  }
}

/** True while the tenant has the old database, and a run may go on to the new one. */
function usesSource(state: MoveState): boolean {
  return state === 'planned' || state === 'prepared' || state === 'copying' || state === 'fenced';
}

/** True for a move that nothing is left to do for. */
export function isAtEnd(state: MoveState): boolean {
  return state === 'settled' || state === 'aborted';
}
