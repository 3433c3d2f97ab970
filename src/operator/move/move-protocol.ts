/**
 * The states of a move. `copying` is the last one in which the tenant is served from the old database as always; from
 * `switched` on it is served from the new one. A move ends `settled` or `aborted`.
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
 * the old one, ready for another attempt; `abort`, which also drops the new one.
 */
export type MoveGoal = 'switch' | 'settle' | 'retreat' | 'abort';

/** One step. Each is atomic, or can be repeated, and has no effect for a run that another run has replaced. */
export type MoveStep =
  /** Records another state, in one transaction of the control database, unless another run has replaced this one. */
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
  | { readonly kind: 'open target' | 'close target' }
  | { readonly kind: 'reopen source' };

/**
 * Returns the steps of one run of a move, one after the other. It does nothing itself: its caller takes each step
 * before it asks for the next, and stops when one fails. A run that fails, or is killed, at any point leaves a state
 * from which another run goes on. Only one run at a time holds the lock of the tenant; one that has lost it without
 * noticing is shut out by its number (`epoch`).
 *
 * I1 (runs) Once a run has recorded its epoch in the control database and in a database, no run with a smaller epoch
 *     changes that. Each step changes one of them, in a transaction that compares the epoch.
 * I2 (one side) At most one of the two databases lets logins of the tenant write.
 *     1. The target is opened only in state `verified`, which only the run that closed the source records, after the
 *        sessions of the tenant's login had ended there.
 *     2. From `verified` a run either records `switched`, and the source is never opened again; or it records `copying`
 *        and then closes the target and reopens the source. Both are recorded under the condition that the state is
 *        `verified`, so only one happens.
 *     3. Another run that finds `fenced` or `verified` does not know whether the source has stayed closed. So it
 *        retreats, and copies again.
 * I3 (nothing lost) What the target contains at `switched` is what the source contained when the last session of the
 *     tenant had ended there: `copy changes` follows `end sessions`, and fails unless the contents are equal.
 * I4 (no drop in use) The source is dropped only after `settling` is recorded, which follows `switched`; the target
 *     only after `aborting`, from which no state leads to `switched`. The names of both are never used again.
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
    yield { kind: 'close target' };
    yield { kind: 'reopen source' };
    yield { kind: 'lift fence' };
  }
  const isGivingUp = goal === 'retreat' || goal === 'abort';

  if (isAtEnd(at) || (at === 'switched' && goal !== 'settle')) return at;
  if (at !== 'settling' && at !== 'switched') yield { kind: 'claim source' };
  if (at !== 'planned' && at !== 'aborting') yield { kind: 'claim target' };
  for (;;) {
    switch (at) {
      case 'planned':
        if (goal === 'retreat') return at;
        if (goal === 'abort') {
          yield enter('aborting');
          break;
        }
        yield { kind: 'create target' };
        yield { kind: 'claim target' };
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
        if (isGivingUp || !closedByThisRun) {
          yield enter('copying');
          break;
        }
        yield { kind: 'open target' };
        yield enter('switched', 'lift');
        break;
      case 'switched':
        if (goal !== 'settle') return at;
        yield enter('settling');
        break;
      case 'settling':
        yield { kind: 'drop source' };
        yield enter('settled');
        break;
      case 'aborting':
        if (fenced) {
          yield* reopen();
          fenced = false;
        }
        yield { kind: 'drop target' };
        yield enter('aborted');
        break;
      case 'settled':
      case 'aborted':
        return at;
    }
  }
}

/** True for a move that nothing is left to do for. */
export function isAtEnd(state: MoveState): boolean {
  return state === 'settled' || state === 'aborted';
}
