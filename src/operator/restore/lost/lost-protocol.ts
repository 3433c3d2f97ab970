/**
 * The steps of a restore of a lost database, in this order. A run takes them while it holds the lock of the tenant. It
 * can be killed at any point, and the next run begins anew, also with other data. A run that has lost its lock without
 * noticing, because it was paused, must not do harm either:
 *
 *   L1 (control) Each step in the control database uses the connection that holds the lock. So it fails in a run that
 *      has lost it.
 *   L2 (names) `take out of service` gives the tenant the names of a new database and login role, and marks it with
 *      `tenants.restoring`, in one transaction. `serve` clears the mark. Names are never used again.
 *   L3 (nothing partial) While a tenant is marked, no process serves it, and no migration and no backup touches its
 *      database. A process that does not know of the mark yet knows the former names only, whose database is lost.
 *   L4 (nothing mixed) A run creates and fills only the database that it has named itself, and no other run does. So a
 *      run that was paused fills a database that nobody else uses, and fails at `serve` (L1).
 *   L5 (drop) `remove remains` drops the database that the tenant has only if the tenant was marked when the run got its
 *      lock. The run that made the database had lost its lock by then, so by L1 it is never served, and by L2 a later
 *      run has another name. It comes before `take out of service`, because the names are known by the tenant only.
 */
export const lostSteps = [
  'remove remains',
  'take out of service',
  'create database',
  'fill database',
  'serve',
] as const;
export type LostStep = (typeof lostSteps)[number];
