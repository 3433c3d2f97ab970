/**
 * The goal of a run:
 *
 * - `provision`: a new tenant has its first database. Until the step `serve`, nobody is served.
 * - `place`: the tenant has another database, which nobody uses.
 * - `move`: the tenant has a database on another server, with everything that was written to
 *   the present one.
 * - `switch`: the tenant has a filled or kept database in place of the present one, with the
 *   webhooks of the present one.
 * - `replace`: the tenant has a new database in place of a lost one.
 * - `upgrade`: a filled or kept database has the version of this build.
 * - `drop`: a database that the tenant does not have, or a tenant that is being purged, is
 *   gone.
 * - `adopt`: the tenant has the open database that a control database of an earlier time does
 *   not know as its current one. The current one, which is closed, is not opened.
 * - `adopt for lost`: the same, when the current one is lost.
 * - `serve former`: the tenant is served from the former database that a control database of an
 *   earlier time names, although another one has taken its place, which is gone for ever.
 * - `retreat`: the tenant is served from the database that it has.
 * - `give up`: a step has failed; a tenant with a fence is served again, and what the run has
 *   begun is condemned.
 */
export type DatabaseGoal =
  | ('provision' | 'place' | 'move' | 'switch' | 'replace' | 'upgrade' | 'drop')
  | ('adopt' | 'adopt for lost' | 'serve former' | 'retreat' | 'give up');

/**
 * One step. Each is atomic, or can be repeated. `current` is the database that the control
 * database says the tenant has at the time of the step; `target` is the one that the run
 * places, switches to, or drops.
 */
export type DatabaseStep =
  /** Condemns the databases that earlier runs have begun, so that no run completes them. */
  | 'condemn leftovers'
  /** Drops what is condemned. */
  | 'drop leftovers'
  /** Records a target, with names that were never used. */
  | 'reserve'
  /** Creates the database of the target, closed. */
  | 'create'
  /**
   * Writes its data, while the tenant is served, and compares them. Gives it an era of the feed
   * (`beginFeedEra`).
   */
  | 'fill'
  /** Records that the target is complete. */
  | 'complete'
  /** Shuts earlier runs out of a database. */
  | 'claim current'
  | 'claim target'
  /**
   * Brings an older target to the version of this build. Gives the target an era of the feed
   * (`beginFeedEra`).
   */
  | 'upgrade target'
  /**
   * Lets every process prepare for the fence. Fails when one does not confirm. Requests go on
   * until the fence is closed, also when that takes hours.
   */
  | 'announce fence'
  /** Copies what was written since `fill`. Fails when the pause would be too long. */
  | 'copy ahead'
  /** From its commit on, requests of the tenant wait. */
  | 'close fence'
  /** Waits until no process uses the current database, or a maximum time has passed. */
  | 'wait for processes'
  /** From its commit on, no login of the tenant begins in the current database. */
  | 'close current'
  /** Fails if the current database is not lost. Closes its role, should it come back. */
  | 'require lost'
  | 'end sessions'
  /**
   * Gives the target the webhooks of the current database, in place of those that it had
   * (`keepWebhooks`).
   */
  | 'keep webhooks'
  /** Copies what was written since `copy ahead`, and compares the two databases. */
  | 'copy changes'
  /**
   * Lets each sequence of the target go on after the numbers that the current database has
   * given, where those are further (`goOnAfter`). If the current one cannot be read, after those
   * that are known of it, with a skip. In `serve former`, the current database goes on after the
   * one that has taken its place.
   */
  | 'carry numbers'
  /** Makes the target the current database, in one transaction of the control database. */
  | 'exchange'
  /**
   * Lets the tenant into the current database. Fails when another one has taken its place, and
   * the control database has lost that.
   */
  | 'open current'
  /**
   * Records in the former database which one has taken its place, if its server is there
   * (`nameSuccessor`).
   */
  | 'name successor'
  /** Lets requests of the tenant go on: lifts the fence, or lets a new tenant be served. */
  | 'serve'
  /** Records that the target will be dropped: nothing leads back. */
  | 'condemn'
  /** Drops the target and its role, also when one of them is gone. */
  | 'drop'
  /** Records that it is gone. */
  | 'forget';

/**
 * Returns the steps of one run, one after the other. It does nothing itself: its caller takes
 * each step before it asks for the next, and stops when one fails; it then takes those of `give
 * up`. A run can be killed at any point, and another one goes on, also to another goal. A run
 * that has lost its lock without noticing, because it was paused, must not do harm either:
 *
 * - I1 (control) Only the control database knows which database is current. `exchange` changes
 *   it in one transaction; like every step in the control database, it uses the connection that
 *   holds the lock of the tenant, and so it fails in a run that has lost the lock.
 * - I2 (epoch) Each change inside a tenant database compares the epoch of the run in the same
 *   transaction. A run gets an epoch above all earlier ones when it gets the lock, and claims a
 *   database that others may know before it changes it. So an earlier run that wakes up later
 *   changes nothing there.
 * - I3 (one open) At most one database lets the tenant in. A new one is closed. `open current`
 *   comes after `exchange`, which comes after `close current` of the same run. Suppose that a
 *   run is replaced between the two: the next run has claimed the former database and opened
 *   it, before it closes it again. So by I1 the first run does not exchange, and by I2 it opens
 *   nothing. A lost database cannot be closed or claimed itself: `require lost` closes its role,
 *   which is still there, should the database come back; and `open current` checks, while its
 *   session is in the database, that the run still holds the lock: only a run with the lock
 *   finds a database lost. A new tenant's databases have no fence: a database that an earlier
 *   run has exchanged is dropped before another one is placed. The target of `adopt` is open
 *   already; the current one is closed, or lost. `serve former` opens a former database while a
 *   newer one may be open: its operator says that the newer one is gone for ever.
 * - I4 (writes) Writes that were acknowledged before `exchange` are in the former database,
 *   which was closed, and whose sessions had ended. In a move they are in the new one too:
 *   `copy changes` follows, and fails unless the two are equal.
 * - I5 (fence) A closed fence stays closed until a run has opened the database that the control
 *   database names. A retreat needs only the server of that database: the other one was never
 *   opened, or is closed. The next run lifts also a fence that was only announced. A control
 *   database can lose its last commits, when a standby or an archive takes its place. Then it
 *   names a former database, which is closed. Before the first request in the new database,
 *   `name successor` has recorded it in the former one as its successor, unless the server of
 *   the former one was away; so `open current` does not open the former one, whatever has
 *   become of the new one, unless an operator says so (`serve former`). `exchange` takes that
 *   record back from a database that becomes the current one.
 * - I6 (drop) Only condemned databases are dropped. The database of a tenant is condemned only
 *   to purge it, when it is lost, or while it is new. No step leads from there back to another
 *   state, and by I1 a run that has lost its lock condemns nothing. Nobody else has its names
 *   (`database-names.ts`).
 * - I7 (data) A reserved database is used by the run that has reserved it, or by none: other
 *   runs condemn it. `exchange` takes only a database that this run has filled, or that is
 *   complete.
 * - I8 (names) The names of a database are never used again. So a paused run creates or fills
 *   only a database that nobody uses.
 * - I9 (remainder) `create` and `fill` begin with a check, in the control database, that the run
 *   still has the target reserved. A run that condemns the target afterwards drops it either
 *   after `create`, or before `create`: then `fill` does not begin, and the database that a
 *   paused run creates has no data. After a purge, doctor finds it by its stamp.
 * - I10 (numbers) No sequence of a tenant gives a number twice, so that a number which others
 *   know, such as that of the entity of a user, never names another record. Each sequence of
 *   the current database is at or after every number that the tenant has got: a first database
 *   has given none before, and a database becomes the current one only after `carry numbers`,
 *   while the former one is closed and its sessions have ended, so that it gives no more. By
 *   induction, the numbers of databases before the former one need not be known. The target is
 *   closed, too; that of `adopt` is open, but was current after the present one, so that by the
 *   induction nothing is set in it. A database that cannot be read may have given more than is
 *   known of it: as far as the numbers that are skipped go, none of those is given again.
 * @param hasFence true if the tenant has a fence, which a run has announced or closed, and not
 *   lifted. This run holds the lock of the tenant, so that no other one changes the fence
 */
export function* databaseProtocol(
  goal: DatabaseGoal,
  hasFence: boolean,
): Generator<DatabaseStep, void, void> {
  if ((hasFence && !servesEarlier(goal)) || goal === 'retreat') yield* retreat();

  switch (goal) {
    case 'retreat':
      return;

    case 'give up':
      yield 'condemn leftovers';
      return;

    case 'provision':
      yield 'condemn leftovers';
      yield 'drop leftovers';
      yield* place();
      yield* exchange(false);
      return;

    case 'place':
      yield 'condemn leftovers';
      yield* place();
      yield 'complete';
      return;

    case 'move':
      yield 'condemn leftovers';
      yield* place();
      yield 'claim current';
      yield 'announce fence';
      yield 'copy ahead';
      yield* closeFence();
      yield 'close current';
      yield 'end sessions';
      yield 'copy changes';
      yield 'carry numbers';
      yield* exchange(true);
      return;

    case 'switch':
      yield 'claim current';
      yield 'claim target';
      yield 'upgrade target';
      yield 'announce fence';
      yield* closeFence();
      yield 'close current';
      yield 'end sessions';
      yield 'keep webhooks';
      yield 'carry numbers';
      yield* exchange(true);
      return;

    case 'adopt':
      yield 'claim current';
      yield 'claim target';
      yield 'close current';
      yield 'carry numbers';
      yield* exchange(true);
      return;

    case 'adopt for lost':
      yield 'claim target';
      yield 'require lost';
      yield 'carry numbers';
      yield* exchange(false);
      return;

    case 'serve former':
      yield 'claim current';
      yield 'carry numbers';
      yield 'open current';
      yield 'serve';
      return;

    case 'replace':
      yield 'condemn leftovers';
      yield 'reserve';
      yield 'announce fence'; // early: the restore may take hours
      yield* makeTarget();
      yield* closeFence();
      yield 'require lost';
      yield 'carry numbers';
      yield* exchange(false);
      return;

    case 'upgrade':
      yield 'claim target';
      yield 'upgrade target';
      return;

    case 'drop':
      yield 'condemn';
      yield 'drop';
      yield 'forget';
      return;
  }
}

/** True for the goals of a tenant of which the control database names a former database. */
export function servesEarlier(goal: DatabaseGoal): boolean {
  return goal === 'adopt' || goal === 'adopt for lost' || goal === 'serve former';
}

/** The steps of a new database. */
function* place(): Generator<DatabaseStep, void, void> {
  yield 'reserve';
  yield* makeTarget();
}

function* makeTarget(): Generator<DatabaseStep, void, void> {
  yield 'create';
  yield 'fill';
}

function* closeFence(): Generator<DatabaseStep, void, void> {
  yield 'close fence';
  yield 'wait for processes';
}

/** @param hasFormer true if the tenant has another database before, which is not lost */
function* exchange(hasFormer: boolean): Generator<DatabaseStep, void, void> {
  yield 'exchange';
  yield 'open current';
  if (hasFormer) yield 'name successor';
  yield 'serve';
}

function* retreat(): Generator<DatabaseStep, void, void> {
  yield 'claim current';
  yield 'open current';
  yield 'serve';
}
