/**
 * Where a restore beside a tenant is, as the control database records it: `none`, no side; `begun`, a side that is not
 * complete; `aside`, the side has the restored data; `swapped`, the tenant has it, and the side the former data.
 */
export type RestoreState = 'none' | 'begun' | 'aside' | 'swapped';

/** What a run begins with. It holds the locks of the tenant and the side, so that no other run changes it. */
export interface RestoreView {
  readonly state: RestoreState;
  /** The fence of the tenant, which a run has announced or closed, and not lifted. */
  readonly fence: 'none' | 'announced' | 'closed';
}

/**
 * What a run is to achieve: a state; or `retreat`, to serve the tenant from the database that it has. `restore --to` and
 * `restore back` lead to `aside`, `restore swap` to `swapped`, and `purge` of the side to `none`.
 */
export type RestoreGoal = 'aside' | 'swapped' | 'none' | 'retreat';

/** A step of the creation of a side, in this order. */
export const sideSteps = ['reserve side', 'create database', 'fill database', 'complete side'] as const;
export type SideStep = (typeof sideSteps)[number];

/** A step of a swap, in this order. */
export const swapSteps = [
  'claim databases',
  'announce fence',
  'close fence',
  'wait for processes',
  'close database',
  'end sessions',
  'hand over other database',
  'end other sessions',
  'exchange databases',
  'open other database',
  'open database',
  'lift fence',
] as const;
export type SwapStep = (typeof swapSteps)[number];

/** A step of the removal of a tenant, such as a side, in this order. */
const removalSteps = ['condemn database', 'drop database', 'forget tenant'] as const;
export type RemovalStep = (typeof removalSteps)[number];

/**
 * One step. Each is atomic, or can be repeated. `database` is that of the tenant at the time of the step, `other
 * database` that of its side.
 */
export type RestoreStep = SideStep | SwapStep | RemovalStep;

/**
 * Returns the steps of one run of a restore, one after the other. It does nothing itself: its caller takes each step
 * before it asks for the next, and stops when one fails; it then retreats if the tenant may be behind its fence. A run
 * can be killed at any point, and another one goes on, also to another goal. A run that has lost its locks without
 * noticing, because it was paused, must not do harm either:
 *
 *   R1 (control) Each step in the control database uses the connection that holds the locks. So it fails in a run that
 *      has lost them. Which database is whose is known by the control database alone, and `exchange databases` changes
 *      it in one transaction.
 *   R2 (runs) Each step of a swap in a tenant database, and `condemn database`, compares the epoch of the run in its
 *      transaction. A swap claims both databases first: from then on no run with a smaller epoch changes them. A run
 *      gets its epoch with its locks, so that a run that has lost them has a smaller one than those that follow.
 *   R3 (one database) At most one database is stamped as the tenant's and lets its login in. A run opens a database for
 *      the tenant only after it has closed the other one: `close database` comes before `hand over other database`, and
 *      `open other database`, which stamps it as the side's, before `open database`. A kill in between leaves none open,
 *      behind the fence.
 *   R4 (writes) What was acknowledged before `exchange databases` is in the former database, and what is acknowledged
 *      after it is in the other one: `close database` refuses new sessions, `end sessions` waits for the end of the
 *      others, and only then the other one is opened for the tenant.
 *   R5 (strangers) Sessions of the side that began before its database was handed over are ended after that. A session
 *      that begins later finds the stamp of the tenant, and is refused. So none of them writes to what the tenant gets.
 *   R6 (fence) A fence that is closed stays closed until a run has opened the databases as the control database says.
 *      While there is a fence, the side is not removed: the run that lifts it needs the database of the side.
 *   R7 (drop) A database is dropped only after it was condemned: its stamp names nobody, in a transaction that succeeds
 *      only while it names the side. No step changes the stamp of a condemned database, so it is never served again.
 *      Names of databases are never used again.
 *   R8 (data) A side that is not complete is never completed by another run, which removes it and makes another one. So
 *      a run that was paused fills a database that nobody else uses, and its last step fails.
 */
export function* restoreProtocol(
  { state, fence }: RestoreView,
  goal: RestoreGoal,
): Generator<RestoreStep, RestoreState, void> {
  const isComplete = state === 'aside' || state === 'swapped';
  if (goal === 'none') {
    if (isComplete && fence !== 'none') return state;
    if (state !== 'none') yield* removalSteps;
    return 'none';
  }
  if (!isComplete) {
    if (goal !== 'aside') return state;
    if (state === 'begun') yield* removalSteps;
    yield* sideSteps;
    return 'aside';
  }
  yield 'claim databases';
  const isExchanged = goal !== 'retreat' && goal !== state;
  if (isExchanged) {
    if (fence !== 'closed') yield 'announce fence';
    yield 'close fence';
    yield 'wait for processes';
    yield 'close database';
    yield 'end sessions';
    yield 'hand over other database';
    yield 'end other sessions';
    yield 'exchange databases';
  }
  yield 'open other database';
  yield 'open database';
  yield 'lift fence';
  return isExchanged ? goal : state;
}

/** What the steps do. */
export type RestoreEffects<Step extends RestoreStep> = Readonly<Record<Step, () => Promise<void>>>;

/**
 * Takes the steps of a run.
 * @param onStep called before each step
 * @throws the error of the first step that fails; or when the effects do not have a step
 */
export async function takeSteps<Step extends RestoreStep>(
  view: RestoreView,
  goal: RestoreGoal,
  effects: RestoreEffects<Step>,
  onStep: (step: Step) => void = () => {},
): Promise<void> {
  for (const step of restoreProtocol(view, goal)) {
    if (!Object.hasOwn(effects, step)) throw new Error(`the run has no step "${step}"`);
    onStep(step as Step);
    await effects[step as Step]();
  }
}
